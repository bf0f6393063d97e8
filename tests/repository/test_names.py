"""Public names of packages: `__all__` is sorted and correct, and the root's names are lazy."""

import ast
import importlib
import subprocess
import sys
import tomllib

import pytest

import embershard
from tests.cases import cases
from tests.repository.sources import ROOT, Module, is_type_checking, modules

MODULES = modules()
PACKAGES = [m for m in MODULES if m.path.name == "__init__.py"]
ROOT_PACKAGE = next(m for m in PACKAGES if m.name == "embershard")  # Its names are lazy.
SUBPACKAGES = [m for m in PACKAGES if m is not ROOT_PACKAGE]


def names_in_all(module: Module) -> list[str] | None:
    """The list assigned to `__all__`, if any."""
    for node in module.tree().body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def constants_then_classes_then_functions(name: str) -> tuple[bool, bool, str]:
    """Sort key for the order that ruff requires of `__all__`."""
    return not name.isupper(), not name[0].isupper(), name


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_all_is_sorted_and_each_name_is_there(package):
    names = names_in_all(package)
    assert names is not None, "no __all__"
    assert names == sorted(set(names), key=constants_then_classes_then_functions)
    loaded = importlib.import_module(package.name)
    assert [name for name in names if not hasattr(loaded, name)] == []


@pytest.mark.parametrize("package", SUBPACKAGES, ids=lambda package: package.name)
def test_init_holds_re_exports_only_and_lists_them_all(package):
    docstring, *statements = package.tree().body
    assert isinstance(docstring, ast.Expr)
    *imports, assignment = statements
    assert [n for n in imports if not isinstance(n, ast.ImportFrom)] == []
    assert ast.unparse(assignment).startswith("__all__ =")
    exported = {alias.asname or alias.name for node in imports for alias in node.names}
    assert exported - {"annotations"} == set(names_in_all(package) or ())


@pytest.mark.parametrize("package", SUBPACKAGES, ids=lambda package: package.name)
def test_no_name_of_a_package_hides_one_of_its_modules(package):
    files = {module.name for module in MODULES}
    assert [name for name in names_in_all(package) or () if f"{package.name}.{name}" in files] == []


def test_root_names_resolve_to_what_type_checkers_see():
    tree = ROOT_PACKAGE.tree()
    block = next(n for n in tree.body if isinstance(n, ast.If) and is_type_checking(n.test))
    imported = {node.module: tuple(alias.name for alias in node.names) for node in block.body}
    homes = next(n for n in tree.body if ast.unparse(n).startswith("_HOMES ="))
    assert ast.literal_eval(homes.value) == imported


def test_root_dir_lists_all():
    assert dir(embershard) == sorted(embershard.__all__)


def test_unknown_root_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'embershard' has no attribute 'Clint'"):
        embershard.Clint  # noqa: B018  only reads the attribute


@cases(
    "statement",
    {
        "client": "embershard.Client",
        "schema": "embershard.Schema, embershard.Vocabulary",
        "server": "embershard.Server",
        "commands": "import embershard.cli",
        "load-tool": "import embershard.bench",
    },
)
def test_serving_and_asking_load_no_torch(statement):
    program = f"""
import sys
import embershard
{statement}
print(sorted({{name.split('.')[0] for name in sys.modules}} & {{'torch', 'fbgemm_gpu'}}))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_version_is_said_alike():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == embershard.__version__
