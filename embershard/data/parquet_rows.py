"""Applies a schema to rows of Parquet files: transforms, and id maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from embershard.data.id_lists import IdLists
from embershard.data.parquet_columns import (
    RawLists,
    Rows,
    dense_matrix,
    ids_of_values,
    label_matrix,
    raw_lists,
    row_keys,
    row_weights,
)
from embershard.data.parquet_config import ParquetConfig
from embershard.data.table_rows import TableRows
from embershard.data.tasks import TaskConfig
from embershard.modules import DenseTransforms
from embershard.package.id_maps import ZERO_ROW, IdMap, Vocabulary

DIRECT_IDS: Final = 4
"""A vocabulary has an array of rows by id if its ids span fewer numbers than this, per id."""

DIRECT_MAX: Final = 1 << 25
"""Largest number of ids of a vocabulary with such an array, which takes 512 MiB at most."""


class RowMapper:
    """Maps rows of files to rows of tables. Each lane has its own, because the record batches of a
    row group share their dictionaries of strings, which are mapped once."""

    def __init__(
        self,
        config: ParquetConfig,
        tasks: Mapping[str, TaskConfig],
        lookups: Mapping[str, RowLookup],
        transforms: DenseTransforms,
    ) -> None:
        self._config, self._tasks, self._lookups = config, tasks, lookups
        self._transforms = transforms
        self._dictionaries = {name: LastDictionary(lookups[name].rows) for name in config.sparse}

    def map(self, rows: Rows) -> TableRows:
        config = self._config
        dense = dense_matrix(rows, config.dense)
        arrays: dict[str, NDArray[Any]] = {
            "dense": transformed(rows, config, self._transforms, dense),
            "labels": label_matrix(rows, self._tasks),
        }
        if config.weight is not None:
            arrays["weights"] = row_weights(rows, config.weight)
        if config.request is not None:
            arrays["request"] = row_keys(rows, config.request)
        lists = {name: raw_lists(rows, name, spec) for name, spec in config.sparse.items()}
        return TableRows(arrays, {name: self._mapped(name, raw) for name, raw in lists.items()})

    def _mapped(self, name: str, raw: RawLists) -> IdLists:
        (values, offsets), dictionary = raw
        if dictionary is None:
            return IdLists(self._lookups[name].rows(values), offsets)
        return IdLists(self._dictionaries[name].values(dictionary)[values], offsets)


class RowLookup:
    """The rows of ids in one table."""

    def __init__(self, ids: IdMap) -> None:
        self._ids = ids
        self._unknown_row = ids.num_rows - 1  # For vocabularies; other maps know every id.
        if isinstance(ids, Vocabulary) and ids.unknown == "zero":
            self._unknown_row = ZERO_ROW
        self._dtype = np.int32 if ids.num_rows <= DIRECT_MAX else np.int64
        self._first, self._direct = 0, np.empty(0, np.int32)
        if isinstance(ids, Vocabulary):
            self._make_direct(ids)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The row of each id, as int32 if the table is small enough: a window has many of them."""
        if len(self._direct):
            places = ids - self._first  # If this overflows, the place is out of range, too.
            places = np.where((places < 0) | (places >= len(self._direct)), -1, places)
            return self._direct[places]
        rows = self._ids.lookup(ids)
        return np.where(rows == ZERO_ROW, self._unknown_row, rows).astype(self._dtype)

    def _make_direct(self, ids: Vocabulary) -> None:
        """Fills the array of rows by id, unless the ids are spread too widely. It takes a tenth of
        the time of a search."""
        first, last = int(ids.keys[0]), int(ids.keys[-1])
        if last - first < DIRECT_IDS * len(ids.keys) and len(ids.keys) < DIRECT_MAX:
            self._first = first
            self._direct = np.full(last - first + 2, self._unknown_row, np.int32)
            self._direct[ids.keys - first] = ids.rows


class LastDictionary:
    """Numbers of a dictionary's values. They are kept, because the next record batch has the same
    dictionary, or one with more values at its end."""

    def __init__(self, function: Callable[[NDArray[np.int64]], NDArray[Any]]) -> None:
        self._function = function
        self._dictionary: pa.Array | None = None
        self._values: NDArray[Any] = np.empty(0, np.int32)

    def values(self, dictionary: pa.Array) -> NDArray[Any]:
        """The number of each value, ``[D]``."""
        last = self._dictionary
        known = 0
        if last is not None and dictionary.slice(0, len(last)).equals(last):
            known = len(last)
        if known != len(dictionary) or known != len(self._values):
            new = self._function(ids_of_values(dictionary.slice(known)))
            self._values = np.concatenate([self._values[:known], new])
            self._dictionary = dictionary
        return self._values


def transformed(
    rows: Rows, config: ParquetConfig, transforms: DenseTransforms, dense: NDArray[np.float32]
) -> NDArray[np.float32]:
    """``dense`` ``[N, F]`` after transforms. Raises DataError if a result is not finite."""
    with torch.no_grad():
        results: NDArray[np.float32] = transforms(torch.from_numpy(dense)).numpy()
    finite = np.isfinite(results)
    if not finite.all():
        row, place = (int(number) for number in np.argwhere(~finite)[0])
        name, spec = list(config.dense.items())[place]
        problem = (
            f"expected a value whose transforms are finite, got {dense[row, place]:g}; "
            f"put a clip first in [data.dense.{name}]"
        )
        raise rows.refusal(spec.column or name, row, problem)
    return results
