"""A measured checkout of embershard: its Python in ``.venv``, its programs and its packages.

The load tool and the harness always come from the checkout with this file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.packages import PackageSpec
from embershard.errors import ConfigError

ROOT: Final = Path(__file__).resolve().parent.parent
PEER_PYTHON: Final = ROOT / ".venv-peers" / "bin" / "python"


class Command(NamedTuple):
    arguments: tuple[str, ...]
    folder: Path = ROOT

    def output(self) -> str:
        """Run it and return its standard output. Raises CalledProcessError if it fails."""
        done = subprocess.run(
            self.arguments, cwd=self.folder, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout.strip()

    def __str__(self) -> str:
        return " ".join(self.arguments)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with sources, ``.venv`` and, for C++ programs, ``build/benchmarks``."""

    root: Path = ROOT

    @staticmethod
    def at(path: Path) -> Checkout:
        root = path.resolve()
        if not (root / ".venv" / "bin" / "python").exists():
            raise ConfigError(f"{path}: expected a checkout with .venv; run `make install` there")
        return Checkout(root)

    @property
    def python(self) -> str:
        return sys.executable if self.root == ROOT else str(self.root / ".venv" / "bin" / "python")

    def module(self, module: str, *arguments: object) -> Command:
        """``python -m module`` of this checkout, or of the one with this file if it has none."""
        own = self.root / Path(*module.split(".")).with_suffix(".py")
        home = self.root if module == "embershard" or own.exists() else ROOT
        return Command((self.python, "-m", module, *map(str, arguments)), home)

    def serve(self, repository: Path, *flags: object) -> Command:
        """`embershard serve` on a free port."""
        return self.module("embershard", "serve", repository, "--port", 0, *flags)

    def program(self, name: str, *arguments: object) -> Command:
        path = self.root / "build" / "benchmarks" / "programs" / name
        if not path.exists():
            raise ConfigError(
                f"{path}: expected a program, found none; run `make benchmark-programs` there"
            )
        return Command((str(path), *map(str, arguments)), self.root)

    def package(self, spec: PackageSpec) -> Path:
        """Folder of the package, as this checkout's exporter writes it."""
        return _package(self, spec)

    def commit(self) -> str:
        """The current commit, with ``+`` if tracked files differ from it."""
        command = ["git", "-C", str(self.root), "describe", "--always", "--exclude=*", "--dirty=+"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or "unknown"


THIS: Final = Checkout()


def peer(module: str, *arguments: object) -> Command:
    """``python -m benchmarks.peers.<module>`` in ``.venv-peers``."""
    start = (str(PEER_PYTHON), "-W", "ignore", "-m", f"benchmarks.peers.{module}")
    return Command((*start, *map(str, arguments)))


@cache
def _package(checkout: Checkout, spec: PackageSpec) -> Path:
    command = checkout.module("benchmarks.workers.export", json.dumps(asdict(spec)))
    return Path(command.output().splitlines()[-1])
