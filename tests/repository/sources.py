"""The sources of the distribution: modules and their imports."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PREDICTOR = ROOT / "embershard" / "serving" / "predictor"


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of the distribution."""

    name: str
    path: Path

    @property
    def component(self) -> str:
        """The second part of the name, such as `package` of `embershard.package.schema`."""
        return self.name.split(".")[1] if "." in self.name else ""

    @cache  # noqa: B019
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(), filename=str(self.path))

    @cache  # noqa: B019
    def imports(self) -> list[Import]:
        return list(imports_of(self.tree()))


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name."""

    target: str  # The full name.
    line: int
    deferred: bool  # Imported inside a function, or for type checkers only.
    relative: bool = False

    @property
    def top(self) -> str:
        return self.target.split(".")[0]

    @property
    def component(self) -> str:
        """The component of an import from embershard, or an empty string."""
        parts = self.target.split(".")
        return parts[1] if parts[0] == "embershard" and len(parts) > 1 else ""


def imports_of(tree: ast.AST, *, deferred: bool = False) -> Iterator[Import]:
    """Every import in a syntax tree. The target of `from a import b` is `a.b`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, deferred)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                target = f"{node.module}.{alias.name}" if node.module else alias.name
                yield Import(target, node.lineno, deferred, relative=node.level > 0)
        else:
            inner = deferred or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if isinstance(node, ast.If) and is_type_checking(node.test):
                inner = True
            yield from imports_of(node, deferred=inner)


def is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def modules() -> list[Module]:
    """Every module of the distribution, except generated ones."""
    package = ROOT / "embershard"
    paths = [path.relative_to(package) for path in sorted(package.rglob("*.py"))]
    return [
        Module(dotted("embershard", path), package / path)
        for path in paths
        if path.parts[0] != "_proto"
    ]


def dotted(prefix: str, relative: Path) -> str:
    parts = [prefix, *relative.with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def own_files(*suffixes: str) -> list[Path]:
    """Files of the repository with one of the suffixes, except generated ones."""
    skipped, result = {"build", "dist", "_proto"}, list[Path]()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [folder for folder in folders if folder not in skipped and folder[0] != "."]
        result += [Path(folder, file) for file in files]
    return sorted(path for path in result if path.suffix in suffixes and path.name[0] != ".")
