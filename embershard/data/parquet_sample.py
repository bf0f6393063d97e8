"""A sample of the rows of Parquet files, spread over all of them."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil

import pyarrow as pa

from embershard.data.parquet_columns import Rows, read_rows
from embershard.data.parquet_files import (
    Footer,
    SourceFile,
    find_files,
    read_footers,
)
from embershard.errors import DataError

BATCH_ROWS = 8192


def sample_rows(patterns: Sequence[str], rows: int) -> tuple[pa.Table, int]:
    """The first rows of evenly spread row groups, about ``rows`` in all; and the number of rows of
    all files. Raises DataError for no files, a file that is no Parquet file, or files whose
    columns have different names or types."""
    files = find_files(patterns, "files")
    footers = read_footers(files)
    columns = footers[0].schema.names
    for file, footer in zip(files, footers, strict=True):
        if footer.schema.names != columns:
            raise DataError(f"{file.path}: expected columns {columns}, got {footer.schema.names}")
        for expected, field in zip(footers[0].schema, footer.schema, strict=True):
            if not _can_join(expected, field):
                raise DataError(
                    f"{file.path}: column {field.name!r}: expected {expected.type} as in "
                    f"{files[0].path}, got {field.type}"
                )
    total = sum(footer.metadata.num_rows for footer in footers)
    schemas = {file.path: footer.schema for file, footer in zip(files, footers, strict=True)}
    tables = [
        # Strings may have been read as dictionaries.
        pa.Table.from_batches([part.batch.cast(schemas[part.path])])
        for part in sample_parts(files, columns, rows)
    ]
    if not tables:
        return footers[0].schema.empty_table(), 0
    return pa.concat_tables(tables, promote_options="permissive"), total


def sample_parts(files: Sequence[SourceFile], columns: Sequence[str], rows: int) -> Iterator[Rows]:
    """The first rows of evenly spread row groups, about ``rows`` in all, a few thousand at once.
    Raises DataError for a file that is no Parquet file, is damaged, or has changed."""
    groups = [
        (file, group, first, count)
        for file, footer in zip(files, read_footers(files), strict=True)
        for group, (first, count) in enumerate(_extents(footer))
        if count
    ]
    total = sum(count for *_, count in groups)
    step = max(1, ceil(min(len(groups) * BATCH_ROWS, total) / rows))
    share = rows / total if total else 0
    for file, group, first, count in groups[::step]:
        wanted = ceil(min(1, share * step) * count)
        for decoded in read_rows(file, group, columns, first=first, rows_max=BATCH_ROWS):
            part = decoded.part(0, wanted)
            yield part
            wanted -= len(part)
            if wanted <= 0:
                break


def _can_join(first: pa.Field, second: pa.Field) -> bool:
    """True if one column can hold the values of both, such as those of int32 and int64."""
    try:
        pa.unify_schemas([pa.schema([first]), pa.schema([second])], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False
    return True


def _extents(footer: Footer) -> list[tuple[int, int]]:
    """The first row and the number of rows of each row group."""
    counts = footer.group_rows()
    return list(zip(accumulate(counts, initial=0), counts, strict=False))
