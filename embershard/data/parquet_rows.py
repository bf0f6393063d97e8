"""Rows as a model takes them: transformed, with ids mapped to rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from embershard.data.id_lists import IdLists
from embershard.data.parquet_columns import (
    Rows,
    dense_matrix,
    ids_of_values,
    label_matrix,
    raw_lists,
    row_keys,
    row_weights,
)
from embershard.data.parquet_config import ParquetConfig
from embershard.data.splits import Batch
from embershard.data.tasks import TaskConfig
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import DenseTransforms
from embershard.package.id_maps import ZERO_ROW, IdMap, Vocabulary

DIRECT_IDS: Final = 4
"""Most numbers between the ends of a vocabulary, per id, for an array of rows by id."""

DIRECT_MAX: Final = 1 << 25
"""Ids of a vocabulary that has such an array; it takes 512 MiB at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """N examples, as numpy has them."""

    dense: NDArray[np.float32]
    """``[N, F]``."""

    sparse: Sequence[IdLists]
    """Table rows of each sparse input."""

    labels: NDArray[np.float32]
    """``[N, T]``."""

    weights: NDArray[np.float32] | None
    """``[N]``."""

    request: NDArray[np.int64] | None
    """``[N]``."""

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def joined(cls, parts: Sequence[TableRows]) -> TableRows:
        """All rows of the parts, at least one part, in order."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            dense=np.concatenate([part.dense for part in parts]),
            sparse=[
                IdLists.joined([part.sparse[place] for part in parts])
                for place in range(len(parts[0].sparse))
            ],
            labels=np.concatenate([part.labels for part in parts]),
            weights=_joined_arrays([part.weights for part in parts]),
            request=_joined_arrays([part.request for part in parts]),
        )

    @classmethod
    def empty(cls, config: ParquetConfig, dense: int, sparse: int, tasks: int) -> TableRows:
        """No rows, with so many inputs and tasks."""
        return cls(
            dense=np.empty((0, dense), np.float32),
            sparse=[IdLists(np.empty(0, np.int64), None)] * sparse,
            labels=np.empty((0, tasks), np.float32),
            weights=None if config.weight is None else np.empty(0, np.float32),
            request=None if config.request is None else np.empty(0, np.int64),
        )

    def take(self, index: NDArray[np.int64]) -> TableRows:
        """The rows ``index``, in that order."""
        return TableRows(
            dense=self.dense[index],
            sparse=[lists.take(index) for lists in self.sparse],
            labels=self.labels[index],
            weights=None if self.weights is None else self.weights[index],
            request=None if self.request is None else self.request[index],
        )

    def part(self, first: int, stop: int) -> TableRows:
        """The rows from ``first`` to before ``stop``, without a copy of their values."""
        rows = slice(first, stop)
        return TableRows(
            dense=self.dense[rows],
            sparse=[lists.part(first, stop) for lists in self.sparse],
            labels=self.labels[rows],
            weights=None if self.weights is None else self.weights[rows],
            request=None if self.request is None else self.request[rows],
        )

    def without_ids(
        self, shares: Mapping[int, tuple[float, int]], rng: np.random.Generator
    ) -> TableRows:
        """The same rows, with some ids replaced by unknown ones.

        Args:
            shares: per place in ``sparse``, the share to replace and the row of unknown ids.
        """
        sparse = list(self.sparse)
        for place, (share, unknown_row) in shares.items():
            values, offsets = sparse[place]
            forgotten = rng.random(len(values)) < share
            sparse[place] = IdLists(np.where(forgotten, unknown_row, values), offsets)
        return TableRows(
            dense=self.dense,
            sparse=sparse,
            labels=self.labels,
            weights=self.weights,
            request=self.request,
        )

    def to_batch(self, keys: list[str]) -> Batch:
        """Tensors of their own memory. ``keys``: names of the sparse inputs."""
        values, lengths = flat_lists(self.sparse)
        labels = self.labels if self.labels.shape[1] > 1 else self.labels[:, 0]
        return Batch(
            _tensor(self.dense),
            KeyedJaggedTensor(keys=keys, values=values, lengths=lengths),
            _tensor(labels),
            None if self.weights is None else _tensor(self.weights),
            None if self.request is None else _tensor(self.request),
        )


class RowMapper:
    """Applies a schema to rows of files. Each place that is read in order has its own, because the
    record batches of a row group share their dictionaries of strings, which are mapped once."""

    def __init__(
        self,
        config: ParquetConfig,
        tasks: Mapping[str, TaskConfig],
        tables: Sequence[RowLookup],
        transforms: DenseTransforms,
    ) -> None:
        """
        Args:
            tables: of each sparse input.
            transforms: of the dense inputs.
        """
        self._config, self._tasks, self._tables = config, tasks, tables
        self._transforms = transforms
        self._dictionaries = [LastDictionary(table.rows) for table in tables]

    def map(self, rows: Rows) -> TableRows:
        """The same rows, transformed and mapped."""
        config = self._config
        return TableRows(
            dense=transformed(rows, config, self._transforms, dense_matrix(rows, config.dense)),
            sparse=[self._mapped(rows, place) for place in range(len(self._tables))],
            labels=label_matrix(rows, self._tasks),
            weights=None if config.weight is None else row_weights(rows, config.weight),
            request=None if config.request is None else row_keys(rows, config.request),
        )

    def _mapped(self, rows: Rows, place: int) -> IdLists:
        name, spec = list(self._config.sparse.items())[place]
        (values, offsets), dictionary = raw_lists(rows, name, spec)
        if dictionary is None:
            return IdLists(self._tables[place].rows(values), offsets)
        return IdLists(self._dictionaries[place].values(dictionary)[values], offsets)


class RowLookup:
    """The rows of ids in one table."""

    def __init__(self, ids: IdMap) -> None:
        self._ids = ids
        self._unknown_row = ids.num_rows - 1  # Of a vocabulary; others know every id.
        self._dtype = np.int32 if ids.num_rows <= DIRECT_MAX else np.int64
        self._first, self._direct = 0, np.empty(0, np.int32)
        if isinstance(ids, Vocabulary):
            self._make_direct(ids)

    def rows(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The row of each id, in the smallest type that a window of many rows can have."""
        if len(self._direct):
            places = ids - self._first  # An overflow is out of range, too.
            places = np.where((places < 0) | (places >= len(self._direct)), -1, places)
            return self._direct[places]
        rows = self._ids.lookup(ids)
        return np.where(rows == ZERO_ROW, self._unknown_row, rows).astype(self._dtype)

    def _make_direct(self, ids: Vocabulary) -> None:
        """An array of rows by id, if the ids are not spread too widely: it takes a tenth of the
        time of a search. Its last element is the row of unknown ids."""
        first, last = int(ids.keys[0]), int(ids.keys[-1])
        if last - first < DIRECT_IDS * len(ids.keys) and len(ids.keys) < DIRECT_MAX:
            self._first = first
            self._direct = np.full(last - first + 2, self._unknown_row, np.int32)
            self._direct[ids.keys - first] = ids.rows


class LastDictionary:
    """Numbers of a dictionary's values, kept for the next one: that of the next record batch is
    the same, or has more values at its end."""

    def __init__(self, function: Callable[[NDArray[np.int64]], NDArray[Any]]) -> None:
        """
        Args:
            function: numbers of ids.
        """
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
    """``dense`` ``[N, F]`` after transforms.

    Raises:
        DataError: a value whose transforms have no finite result.
    """
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


def flat_lists(lists: Sequence[IdLists]) -> tuple[Tensor, Tensor]:
    """Values and lengths of all lists, int64, in memory of their own."""
    nothing = np.empty(0, np.int64)
    values = np.concatenate([nothing, *(part.values for part in lists)], dtype=np.int64)
    lengths = np.concatenate([nothing, *(part.lengths for part in lists)])
    return torch.from_numpy(values), torch.from_numpy(lengths)


def _tensor(array: NDArray[np.float32] | NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(np.array(array))


def _joined_arrays(arrays: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if present else None
