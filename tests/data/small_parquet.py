"""Parquet files for tests, and configurations that read them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embershard.data import ParquetConfig, TaskConfig
from embershard.data.parquet_batches import load_parquet

CLICK = {"click": TaskConfig(label="click")}


def table(rows, *, first=0, **columns):
    """A table whose column ``row`` numbers the rows. The other columns depend on it."""
    numbers = np.arange(first, first + rows)
    defaults = {
        "row": pa.array(numbers),
        "time": pa.array(numbers * 1000, pa.timestamp("ms")),
        "price": pa.array(numbers * 0.5),
        "item": pa.array(numbers % 7),
        "click": pa.array((numbers % 3 == 0).astype(np.int8)),
    }
    return pa.table(defaults | columns)


def write(folder, *tables, row_group_size=None):
    """Writes the tables to ``0.parquet``, ``1.parquet`` and so on in ``folder``."""
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=row_group_size)
    return folder


def config(folder, **sections):
    """A configuration that splits by time and has the row's number as a dense input."""
    defaults = {
        "name": "parquet",
        "files": [str(folder)],
        "split": {"by": "time", "column": "time"},
        "dense": {"row": {}},
        "sparse": {"item": {}},
    }
    return ParquetConfig.model_validate(defaults | sections)


def load(folder, tasks=CLICK, **sections):
    """The data set of `config`, with its cache next to ``folder``."""
    return load_parquet(config(folder, **sections), tasks, folder.parent / "cache")


def row_numbers(batches):
    """The row numbers in batches of `config`, in order."""
    return [int(number) for batch in batches for number in batch.dense[:, 0]]


def lists_of(batch, name):
    """The table rows of a sparse input, with one list for each example."""
    column = batch.sparse[name]
    values, lengths = column.values().tolist(), column.lengths().tolist()
    ends = np.cumsum(lengths).tolist()
    return [values[end - length : end] for length, end in zip(lengths, ends, strict=True)]
