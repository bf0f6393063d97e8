"""Writes a model's configuration beside its versions: ``<repository>/<model>/config.pbtxt``."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from embershard.errors import InputError
from embershard.serving.triton.configuration import CONFIG_FILE, model_config
from embershard.serving.triton.options import TritonOptions


def write_model_config(
    package: str | Path, options: TritonOptions | None = None, *, force: bool = False
) -> tuple[Path, bool]:
    """Writes the configuration that a package's model needs in Triton, whole or not at all.

    Args:
        package: the folder of one version, ``<repository>/<model>/<version>``.
        options: None: the defaults.
        force: whether another configuration may be overwritten.

    Returns:
        The file, and whether it was written; it is left where it says the same already.

    Raises:
        PackageError: the package is damaged.
        NotFoundError: it has no plan of that name.
        InputError: another configuration is there, without ``force``; or the package lies in the
            folder of another model.
    """
    # NumPy, which comes with it, starts threads: no command has them before it needs them.
    from embershard.package import Package
    from embershard.package.sealing import replace_file

    opened = Package.open(package)
    text = model_config(opened, options)
    file = opened.path.absolute().parent / CONFIG_FILE
    try:
        there = file.read_text(errors="replace")
    except FileNotFoundError:
        there = None
    if there == text:
        return file, False
    if there is not None and not force:
        raise InputError(f"{file}: {_difference(there, text)}; --force overwrites it")
    replace_file(file, text.encode())
    return file, True


def _difference(there: str, text: str) -> str:
    """The first line in which they differ, in words."""
    lines = zip_longest(there.splitlines(), text.splitlines())
    for number, (got, expected) in enumerate(lines, start=1):
        if got != expected:
            return f"line {number}: expected {_shown(expected)}, got {_shown(got)}"
    return "expected other ends of lines"


def _shown(line: str | None) -> str:
    return "no more lines" if line is None else repr(line.strip())
