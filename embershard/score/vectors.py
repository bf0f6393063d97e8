"""Writes one vector for each id of a data set, for an index of nearest neighbours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from embershard.data.parquet_columns import NeededColumn, Rows, column_kind
from embershard.data.parquet_files import Footer, SourceFile, read_footers
from embershard.data.prefetch import prefetched
from embershard.errors import DataError, InputError
from embershard.score.batch_scorer import BadRow, BatchScorer, output_column
from embershard.score.files import BATCHES_AHEAD, row_batches
from embershard.score.targets import MADE_OF, check_targets, find_sources

FILES = ("vectors.parquet", "vectors.npy", "ids.npy")
SCRATCH = ".vectors.partial"
"""Temporary folder in ``out``. If a killed run left one, the next run starts from scratch."""


def write_vectors(
    scorer: BatchScorer, patterns: Sequence[str], out: Path, *, key: str, overwrite: bool = False
) -> tuple[int, int]:
    """Write the vector of each id, in the order of the rows, to ``vectors.parquet`` (columns ``id``
    and ``vector``), ``vectors.npy`` (float32 ``[ids, width]``) and ``ids.npy``.

    Args:
        scorer: must have one output, the vector.
        patterns: Parquet files with at least one row for each id. The first row is used, in the
            order of the patterns.
        out: folder to write to.
        key: column of the ids, integers or strings.
        overwrite: replace vectors in ``out``.

    Returns:
        Number of ids, and the width of a vector.

    Raises:
        InputError: the output is not a vector or has another scope than the key, ``out`` has
            vectors, or a source would be replaced.
        DataError: a row cannot be scored, an id is null, or see `score_files`.
    """
    [(name, shape)] = scorer.output_shapes.items()
    if len(shape) != 1:
        raise InputError(f"--output: expected a vector, got {name!r} of shape {list(shape)}")
    scorer.check_key(key)
    scratch = out / SCRATCH
    present = [file for file in FILES if (out / file).exists()]
    if present and not overwrite and not scratch.exists():
        raise InputError(f"--out: expected no vectors in {out}, got {present[0]}; pass --overwrite")
    ids, vectors = _first_vectors(scorer, patterns, out, key, name)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        _write_files(scratch, ids, vectors)
        for file in FILES:
            os.replace(scratch / file, out / file)
    finally:
        shutil.rmtree(scratch)
    return len(ids), shape[0]


def _first_vectors(
    scorer: BatchScorer, patterns: Sequence[str], out: Path, key: str, output: str
) -> tuple[pa.Array, NDArray[np.float32]]:
    """All ids, in the order of their first rows, and these rows' vectors."""
    files = find_sources(patterns, out)
    check_targets(files, out, FILES)
    footers = read_footers(files)
    key_type = _key_type(scorer, files, footers, key)
    ids, vectors, bad_rows = dict[Any, None](), list[NDArray[np.float32]](), list[BadRow]()
    for file, footer in zip(files, footers, strict=True):
        batches = (scorer.prepare(rows) for rows in row_batches(scorer, file, footer, [key]))
        for prepared in prefetched(batches, BATCHES_AHEAD):
            keys, first_rows = _first_rows(prepared.rows, key)
            scores = scorer.run(prepared)
            bad_rows += scores.bad_rows
            new = [place for place, value in enumerate(keys) if value not in ids]
            ids.update((keys[place], None) for place in new)
            vectors.append(scores.outputs[output][first_rows[new]])
    if bad_rows:
        raise DataError(f"{len(bad_rows):,} rows have no vector; the first: {bad_rows[0].reason}")
    return pa.array(ids, key_type), np.concatenate(vectors)


def _key_type(
    scorer: BatchScorer, files: Sequence[SourceFile], footers: Sequence[Footer], key: str
) -> pa.DataType | None:
    """None if the type differs, such as int32 in one file and int64 in another."""
    kinds, key_types = set[str](), set[pa.DataType]()
    for file, footer in zip(files, footers, strict=True):
        scorer.check_columns(file.path, footer.schema)
        kinds.add(column_kind(file.path, footer.schema, NeededColumn(key, "key", "--key")))
        key_types.add(footer.schema.field(key).type)
    if len(kinds) > 1:
        raise DataError(f"--key: expected one type of column {key!r} in all files, got both "
                        f"{' and '.join(sorted(kinds))}")  # fmt: skip
    return key_types.pop() if len(key_types) == 1 else None


def _first_rows(rows: Rows, key: str) -> tuple[list[Any], NDArray[np.int64]]:
    """Ids without duplicates, and the first row of each."""
    keys = rows.batch.column(key)
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if keys.null_count:
        row = keys.is_null().index(True).as_py()
        raise rows.refusal(key, row, "expected an id (--key), got null; leave the row out")
    encoded = keys.dictionary_encode()
    first_rows = np.unique(encoded.indices.to_numpy(), return_index=True)[1]
    return encoded.dictionary.to_pylist(), first_rows


def _write_files(folder: Path, ids: pa.Array, vectors: NDArray[np.float32]) -> None:
    table = pa.table({"id": ids, "vector": output_column(vectors)})
    table = table.replace_schema_metadata({MADE_OF: b"vectors"})
    pq.write_table(table, folder / "vectors.parquet")
    np.save(folder / "vectors.npy", vectors)
    keys = ids.to_numpy(zero_copy_only=False)
    np.save(folder / "ids.npy", keys.astype(np.str_) if keys.dtype == object else keys)
