"""A sample of the rows of Parquet files, spread over all of them."""

from collections.abc import Sequence
from math import ceil

import pyarrow as pa

from embershard.data.parquet_files import find_files, read_footers, record_batches
from embershard.errors import DataError

BATCH_ROWS = 8192


def sample_rows(patterns: Sequence[str], rows: int) -> tuple[pa.Table, int]:
    """The first rows of evenly spread row groups, about ``rows`` in all; and how many there are.

    Raises:
        DataError: no files, a file that is no Parquet file, or files with different columns.
    """
    files = find_files(patterns, "files")
    footers = read_footers(files)
    columns = footers[0].schema.names
    for file, footer in zip(files, footers, strict=True):
        if footer.schema.names != columns:
            raise DataError(f"{file.path}: expected columns {columns}, got {footer.schema.names}")
    groups = [
        (file, group, count)
        for file, footer in zip(files, footers, strict=True)
        for group, count in enumerate(footer.group_rows())
        if count
    ]
    total = sum(count for _, _, count in groups)
    batches = list[pa.RecordBatch]()
    step = max(1, ceil(len(groups) * BATCH_ROWS / rows))
    share = rows / total if total else 0
    for file, group, count in groups[::step]:
        wanted = ceil(min(1, share * step) * count)
        for batch in record_batches(file, group, columns, BATCH_ROWS):
            batches.append(batch.slice(0, wanted))
            wanted -= len(batches[-1])
            if wanted <= 0:
                break
    tables = [pa.Table.from_batches([batch]) for batch in batches]
    if not tables:
        return footers[0].schema.empty_table(), 0
    return pa.concat_tables(tables, promote_options="permissive"), total
