"""Finds the files to score, and chooses the path of each file's scores.

sources in --data                          scores in --out
─────────────────────────────────────────  ───────────────────────────────────────
data/q/a.parquet       data/p/a.parquet    q/a.parquet         p/a.parquet
s3://lake/a.parquet    /data/a.parquet     s3/lake/a.parquet   file/data/a.parquet
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from embershard.data.parquet_files import SourceFile, file_key, find_files, footer_of
from embershard.errors import DataError, InputError

MADE_OF = b"embershard.scores"

BAD_FOLDER = "_bad"


def find_sources(patterns: Sequence[str], out: Path) -> list[SourceFile]:
    """Find the files of all patterns, except those in ``out`` that an earlier run wrote.

    Raises InputError if ``out`` is a file; DataError if there are no files, or a file in ``out`` is
    not a Parquet file.
    """
    if out.exists() and not out.is_dir():
        raise InputError(f"--out: expected a folder, got the file {out}")
    folder = os.path.realpath(out)
    files = [
        file
        for file in find_files(patterns, "--data")
        if not Path(file_key(file.path)).is_relative_to(folder)
        or MADE_OF not in (footer_of(file).schema.metadata or {})
    ]
    if not files:
        raise DataError(f"--data: expected Parquet files, found only scores in --out {out}")
    return files


def target_paths(files: Sequence[SourceFile], out: Path) -> list[str]:
    """Choose the path of each file's scores in ``out``. Errors are those of `check_targets`."""
    paths = [_rooted(file.path) for file in files]
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    targets = [os.path.relpath(path, common) for path in paths]
    check_targets(files, out, [*targets, *(f"{BAD_FOLDER}/{target}" for target in targets)])
    return targets


def check_targets(files: Sequence[SourceFile], out: Path, targets: Sequence[str]) -> None:
    """Raise InputError if a target is a source, or two targets are the same file."""
    sources = {file_key(file.path) for file in files}
    written = set[str]()
    for target in targets:
        path = file_key(str(out / target))
        if path in sources:
            raise InputError(
                f"--out: expected a folder without files of --data, got {out}, where scores would "
                f"replace {path}; choose another folder"
            )
        if path in written:
            raise InputError(
                f"--data: expected files with different paths in --out, got two for {path}; score "
                "them in two runs"
            )
        written.add(path)


def _rooted(path: str) -> str:
    """Prefix the path with a folder that is named after the scheme, such as ``/file``."""
    scheme, _, rest = path.rpartition("://")
    if scheme in ("", "file", "local"):
        scheme, rest = "file", os.path.abspath(rest)
    return os.path.normpath(f"/{scheme}/{rest}")
