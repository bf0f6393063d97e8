"""Scores Parquet files into Parquet files.

    OUT/<file>        kept columns and a column for each output, in the order of the rows
    OUT/_bad/<file>   rows without scores: row number, reason, kept columns

A file appears atomically. Its metadata names its source, package and columns, so that a run that
was killed can be started again and scores only the missing files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embershard.data.parquet_columns import Rows, read_rows
from embershard.data.parquet_files import (
    Footer,
    SourceFile,
    read_footers,
)
from embershard.data.prefetch import prefetched
from embershard.errors import DataError, InputError
from embershard.score.batch_scorer import BatchScorer, PreparedRows, Scores, score_columns
from embershard.score.requests import RowShape
from embershard.score.targets import BAD_FOLDER, MADE_OF, find_sources, target_paths

BATCH_ROWS: Mapping[RowShape, int] = {"impression": 32768, "request": 1024}
"""Rows that are scored together. Smaller batches need more CPU time per row."""

BATCHES_AHEAD = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredFiles:
    files: int

    skipped: int

    rows: int

    bad_rows: int
    """Rows without scores, including those of skipped files."""


def score_files(
    scorer: BatchScorer,
    patterns: Sequence[str],
    out: Path,
    *,
    keep: Sequence[str] | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> ScoredFiles:
    """Score every row of Parquet files.

    Args:
        scorer: the package, and the columns of its inputs.
        patterns: files, folders, globs and URLs of Parquet files. Scores in ``out`` are left out.
        out: folder to write to; made if it does not exist.
        keep: columns to copy to the output. None copies all.
        overwrite: replace scores of other files or of another package.
        progress: called with the rows done and the rows of all files.

    Raises:
        DataError: there are no files, a file is damaged or changed meanwhile, or a column is
            missing or has the wrong type.
        InputError: ``out`` has scores of other files or of another package, a source would be
            replaced, or see `score_columns`.
    """
    files = find_sources(patterns, out)
    targets = target_paths(files, out)
    footers = read_footers(files)
    for file, footer in zip(files, footers, strict=True):
        scorer.check_columns(file.path, footer.schema)
        _check_kept(file.path, footer.schema, keep)
    all_columns = [name for footer in footers for name in footer.schema.names]
    names = score_columns(scorer.outputs, all_columns if keep is None else keep)
    out.mkdir(parents=True, exist_ok=True)
    total = sum(footer.metadata.num_rows for footer in footers)
    done, skipped, skipped_rows, bad_rows = 0, 0, 0, 0

    def report(rows: int) -> None:
        nonlocal done
        done += rows
        if progress is not None:
            progress(done, total)

    for file, footer, target in zip(files, footers, targets, strict=True):
        columns = _Columns(footer.schema.names if keep is None else list(keep), names)
        made_of = _content_key(scorer, file, columns)
        if _is_done(out / target, made_of, overwrite):
            skipped += 1
            skipped_rows += footer.metadata.num_rows
            bad_rows += _row_count(out / BAD_FOLDER / target)
            report(footer.metadata.num_rows)
            continue
        bad_rows += _score_file(scorer, file, footer, out, target, columns, made_of, report)
    return ScoredFiles(
        files=len(files) - skipped,
        skipped=skipped,
        rows=total - skipped_rows,
        bad_rows=bad_rows,
    )


def _check_kept(path: str, schema: pa.Schema, keep: Sequence[str] | None) -> None:
    for name in keep or ():
        if name not in schema.names:
            raise DataError(f"{path}: expected a column {name!r} to keep, found none")


class _Columns(NamedTuple):
    kept: Sequence[str]
    scores: Mapping[str, str]


def _content_key(scorer: BatchScorer, file: SourceFile, columns: _Columns) -> bytes:
    manifest = scorer.package.manifest
    document = {
        "source": list(file),
        "package": [manifest.model, manifest.version, scorer.package_digest],
        "outputs": columns.scores,
        "columns": scorer.columns,
        "rows": scorer.rows,
        "keep": columns.kept,
    }
    return json.dumps(document).encode()


def _is_done(target: Path, made_of: bytes, overwrite: bool) -> bool:
    if not target.exists():
        return False
    try:
        metadata = pq.read_schema(target).metadata or {}
    except (OSError, pa.ArrowException) as error:
        if overwrite:
            return False
        raise InputError(f"{target}: expected scores, got: {error}; pass --overwrite") from error
    if metadata.get(MADE_OF) == made_of:
        return True
    if overwrite:
        return False
    raise InputError(
        f"{target}: expected scores of this file by this package, got others; choose another "
        "--out or pass --overwrite"
    )


def _row_count(path: Path) -> int:
    rows: int = pq.read_metadata(path).num_rows if path.exists() else 0
    return rows


def _score_file(
    scorer: BatchScorer,
    file: SourceFile,
    footer: Footer,
    out: Path,
    target: str,
    columns: _Columns,
    made_of: bytes,
    report: Callable[[int], None],
) -> int:
    """Returns the number of bad rows."""
    kept_schema = pa.schema([footer.schema.field(name) for name in columns.kept])
    good = _NewFile(out / target, {MADE_OF: made_of})
    bad = _NewFile(out / BAD_FOLDER / target, {MADE_OF: made_of})
    try:
        batches = (scorer.prepare(rows) for rows in row_batches(scorer, file, footer, columns.kept))
        for prepared in prefetched(batches, BATCHES_AHEAD):
            batch, scores = prepared.rows.batch, scorer.run(prepared)
            # If a row group has few different strings, they are read as a dictionary column.
            carried = pa.Table.from_batches([batch.select(columns.kept)]).cast(kept_schema)
            good.write(_good_rows(carried, scores, columns.scores))
            if scores.bad_rows:
                bad.write(_bad_rows(carried, prepared, scores))
            report(len(batch))
        bad.publish()
        good.publish()
    finally:
        good.discard()
        bad.discard()
    return bad.rows


def row_batches(
    scorer: BatchScorer, file: SourceFile, footer: Footer, kept: Sequence[str]
) -> Iterator[Rows]:
    """Yield the columns that are read and kept, in at least one batch."""
    columns = list(dict.fromkeys([*scorer.columns, *kept]))
    number = 0
    for group in range(footer.metadata.num_row_groups):
        rows_max = BATCH_ROWS[scorer.rows]
        for rows in read_rows(file, group, columns, first=number, rows_max=rows_max):
            yield rows
            number += len(rows)
    if number == 0:  # An empty batch, so that the file of scores has its columns.
        batch = pa.RecordBatch.from_pylist([], footer.schema)
        yield Rows(batch, file.path, 0, np.arange(0))


def _good_rows(table: pa.Table, scores: Scores, names: Mapping[str, str]) -> pa.Table:
    for name, column in scores.columns().items():
        table = table.append_column(names[name], column)
    if not scores.bad_rows:
        return table
    is_good = np.ones(len(table), np.bool_)
    is_good[[bad.row for bad in scores.bad_rows]] = False
    return table.filter(pa.array(is_good))


def _bad_rows(kept: pa.Table, prepared: PreparedRows, scores: Scores) -> pa.Table:
    places = [bad.row for bad in scores.bad_rows]
    own = {"row": prepared.rows.numbers[places], "reason": [bad.reason for bad in scores.bad_rows]}
    columns = {}
    for name, values in own.items():
        while name in kept.column_names:
            name = f"bad_{name}"
        columns[name] = pa.array(values)
    table = pa.table(columns)
    for name in kept.column_names:
        table = table.append_column(name, kept.column(name).take(pa.array(places)))
    return table


class _NewFile:
    """A Parquet file that appears when it is published, if anything was written."""

    def __init__(self, path: Path, metadata: Mapping[bytes, bytes]) -> None:
        self._path, self._metadata = path, dict(metadata)
        self._partial = path.with_name(f".{path.name}.partial")
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        table = table.replace_schema_metadata(self._metadata)
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._partial, table.schema)
        self._writer.write_table(table.cast(self._writer.schema))
        self.rows += len(table)

    def publish(self) -> None:
        if self._writer is None:
            self._path.unlink(missing_ok=True)
            return
        self._writer.close()
        self._writer = None
        with open(self._partial, "rb") as written:
            os.fsync(written.fileno())
        os.replace(self._partial, self._path)

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._partial.unlink(missing_ok=True)
