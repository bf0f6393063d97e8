"""The repository's language: phrases that have a standard term, and files that still use them.

``language.txt`` lists the phrases; ``language_exempt.txt`` the files, and only shrinks.

python -m tests.repository.language     removes the files that have become clean from the list
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.repository.sources import ROOT, own_files

FOLDER = Path(__file__).parent
EXEMPT = FOLDER / "language_exempt.txt"
SUFFIXES = (".py", ".pyi", ".h", ".cc", ".js", ".md", ".proto", ".sh", ".cmake", ".toml", ".yaml")


def phrases() -> dict[str, str]:
    """Phrase -> standard term."""
    lines = (FOLDER / "language.txt").read_text().splitlines()
    pairs = (line.split(" | ", maxsplit=1) for line in lines if line and not line.startswith("#"))
    return dict(pairs)


def exempt() -> list[str]:
    return EXEMPT.read_text().split()


def words(text: str) -> str:
    """Lower case, one space between words; CamelCase, snake_case and comment marks are split."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def faults(name: str, text: str) -> list[str]:
    """``file: 'phrase': write the standard term`` for each phrase in a file or its name."""
    found = f" {words(name)} {words(text)} "
    return [
        f"{name}: {phrase!r}: write {term!r}"
        for phrase, term in phrases().items()
        if f" {phrase} " in found
    ]


def faults_of_files() -> dict[str, list[str]]:
    """File -> its faults, for files that have some."""
    files = {path.relative_to(ROOT).as_posix(): path for path in own_files(*SUFFIXES)}
    every = {name: faults(name, path.read_text()) for name, path in files.items()}
    return {name: found for name, found in every.items() if found}


if __name__ == "__main__":
    broken = faults_of_files()
    EXEMPT.write_text("".join(f"{name}\n" for name in exempt() if name in broken))
