"""The parser of every command line, of examples and benchmarks too."""

import argparse
from pathlib import Path
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Takes flags by their whole names, and refuses a command line in one sentence."""

    def __init__(self, **given: Any) -> None:
        super().__init__(allow_abbrev=False, **given)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def nonempty_path(text: str) -> Path:
    """The type of arguments that are paths: an empty one, such as an unset variable of a script
    gives, is refused. ``Path("")`` is the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, got ''")
    return Path(text)
