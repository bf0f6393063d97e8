"""Vectors of all ids of a data set, for an index of nearest neighbours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from embershard.errors import DataError, InputError
from embershard.score.batch_scorer import BatchScorer, output_column, score_columns
from embershard.score.files import BAD_FOLDER, score_files

FILES = ("vectors.parquet", "vectors.npy", "ids.npy")
SCRATCH = ".vectors.partial"
"""Folder in ``out`` while vectors are made. A killed run leaves it; the next one starts anew."""


def write_vectors(
    scorer: BatchScorer, patterns: Sequence[str], out: Path, *, key: str, overwrite: bool = False
) -> tuple[int, int]:
    """Write the vector of each id: ``vectors.parquet`` (columns ``id`` and ``vector``),
    ``vectors.npy`` (float32 ``[ids, width]``) and ``ids.npy``, in the order of the rows.

    Args:
        scorer: has one output, the vector.
        patterns: Parquet files with a row, or more, for each id; the first row counts.
        out: folder to write to.
        key: column of the ids.
        overwrite: replace vectors in ``out``.

    Returns:
        Number of ids, and the width of a vector.

    Raises:
        InputError: the output is no vector or has another scope than the key, or vectors lie in
            ``out``.
        DataError: see `score_files`; or a row cannot be scored.
    """
    [(name, shape)] = scorer.output_shapes.items()
    if len(shape) != 1:
        raise InputError(f"--output: expected a vector, got {name!r} of shape {list(shape)}")
    scorer.check_key(key)
    scratch = out / SCRATCH
    present = [file for file in FILES if (out / file).exists()]
    if present and not overwrite and not scratch.exists():
        raise InputError(
            f"--out: expected no vectors in {out}, found {present[0]}; pass --overwrite"
        )
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        count = _write_vectors(scorer, patterns, scratch, key, name)
        for file in FILES:
            os.replace(scratch / file, out / file)
    finally:
        shutil.rmtree(scratch)
    return count, shape[0]


def _write_vectors(
    scorer: BatchScorer, patterns: Sequence[str], folder: Path, key: str, output: str
) -> int:
    """Writes the three files. Returns the number of ids."""
    scored = score_files(scorer, patterns, folder / "scores", keep=[key])
    if scored.bad_rows:
        first = ds.dataset(folder / "scores" / BAD_FOLDER).head(1)["reason"][0]
        raise DataError(f"{scored.bad_rows:,} rows have no vector; the first: {first}")
    table = ds.dataset(folder / "scores", exclude_invalid_files=False).to_table()
    ids = table[key].combine_chunks()
    places = ids.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    rows = np.sort(np.unique(places, return_index=True)[1])
    ids = ids.take(pa.array(rows))
    column = table[score_columns([output], [key])[output]]
    vectors = column.combine_chunks().flatten().to_numpy().reshape(-1, column.type.list_size)[rows]
    table = pa.table({"id": ids, "vector": output_column(vectors)})
    pq.write_table(table, folder / "vectors.parquet")
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "ids.npy", ids.to_numpy(zero_copy_only=False))
    return len(rows)
