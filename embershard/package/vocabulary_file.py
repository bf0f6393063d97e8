"""Vocabularies on disk: ids/<name>.safetensors.

    keys   I64 [n]   the ids, strictly increasing as signed numbers: found by bisection
    rows   I64 [n]   the row of each: every one of 0 .. n - 1 once

What an unknown id gets is not in the file: inputs with different policies may share one.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from embershard.package.id_maps import UnknownIds, Vocabulary
from embershard.package.safetensors_file import SafetensorsFile, write_safetensors
from embershard.package.validation import refusal

ALIGN = 8
IDS_MAX = (1 << 32) - 1


def write_vocabulary(path: Path, vocabulary: Vocabulary) -> None:
    """Writes the ids and rows of ``vocabulary``; its policy is kept elsewhere."""
    write_safetensors(path, {"keys": vocabulary.keys, "rows": vocabulary.rows}, align=ALIGN)


def read_vocabulary(
    path: Path, unknown: UnknownIds = "reject", *, file: str | None = None
) -> Vocabulary:
    """Maps a vocabulary's file and checks all of it.

    Args:
        path: the file.
        unknown: what an id outside it gets.
        file: the name to use in refusals. None: the file's own.

    Raises:
        PackageError: a damaged file, keys out of order, or rows that are not 0 .. n - 1 each
            once.
    """
    keys, rows = open_vocabulary(path, path.name if file is None else file)
    check_vocabulary(keys, rows, path.name if file is None else file)
    return Vocabulary.from_sorted(keys, rows, unknown)


def open_vocabulary(
    path: Path, file: str, *, ids: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Maps keys and rows, int64 ``[n]`` each, without reading them. ``ids``: what n must be. None:
    anything."""
    opened = SafetensorsFile.open(path, file, align=ALIGN)
    opened.check_names(["keys", "rows"])
    keys = opened.tensor("keys", "I64", (ids,))
    if not 1 <= len(keys) <= IDS_MAX:
        raise refusal(file, "keys", expected=f"1 .. {IDS_MAX} ids", got=f"{len(keys)}")
    return keys, opened.tensor("rows", "I64", (len(keys),))


def check_vocabulary(keys: NDArray[np.int64], rows: NDArray[np.int64], file: str) -> None:
    """Reads all of a vocabulary."""
    falls = np.flatnonzero(keys[1:] <= keys[:-1])
    if len(falls):
        at = int(falls[0]) + 1
        got = f"{keys[at - 1]} and then {keys[at]} at position {at}"
        raise refusal(file, "keys", expected="strictly increasing ids", got=got)
    outside = np.flatnonzero((rows < 0) | (rows >= len(rows)))
    if len(outside):
        at = int(outside[0])
        expected = f"rows of 0 .. {len(rows) - 1}"
        raise refusal(file, "rows", expected=expected, got=f"{rows[at]} at position {at}")
    seen = np.zeros(len(rows), np.bool_)
    seen[rows] = True
    if not seen.all():
        got = f"none with row {int(np.argmin(seen))}"
        raise refusal(file, "rows", expected="every row once", got=got)
