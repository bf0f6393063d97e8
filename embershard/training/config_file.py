"""A configuration's text, kept to say on which line a key stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A TOML file as it was read."""

    path: Path
    text: str

    def where(self, names: Sequence[str]) -> str:
        """``<file>:<line>: key '<names>'``, for the beginning of a message."""
        return f"{self.path}:{self._line_of(names)}: key {'.'.join(names)!r}"

    def _line_of(self, names: Sequence[str]) -> int:
        """Line of the innermost part of a key that stands in the file, from 1."""
        section, found = "", 1
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                section = header[1]
                if section == ".".join(names[: section.count(".") + 1]):
                    found = number
            elif assignment := re.match(r"\s*([A-Za-z0-9_.\-\"']+)\s*=", line):
                key = assignment[1].strip("\"'")
                full = f"{section}.{key}" if section else key
                if full == ".".join(names[: full.count(".") + 1]):
                    return number
        return found
