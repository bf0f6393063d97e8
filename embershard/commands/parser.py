"""The argument parser of ``embershard``, ``python -m benchmarks`` and the MovieLens example."""

import argparse
from pathlib import Path
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Refuses abbreviated flags, and reports an error as a single line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def nonempty_path(text: str) -> Path:
    """Refuse an empty path, often of an unset variable, which would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got ''")
    return Path(text)
