"""Request rows: a row of a file has one request, and lists with an element for each candidate.

    row    user   item              clicked
    ────   ────   ───────────────   ─────────
    0      u1     [i1, i2, i3]      [1, 0, 0]     3 candidates
    1      u2     []                []            none
    2      u3     [i1, i4]          [0, 1]        2 candidates

Columns of candidates are flattened first. Everything that reads impression rows then reads the
candidates, and reads the columns of the request from the row itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from embershard.data.base import JaggedColumn
from embershard.data.id_lists import IdLists
from embershard.data.parquet_columns import Rows, is_list, needed_columns
from embershard.data.parquet_config import ParquetConfig
from embershard.data.parquet_rows import RowLookup, RowMapper, TableRows, flat_lists
from embershard.data.splits import Batch
from embershard.data.tasks import TaskConfig
from embershard.ids import hash_ids, hash_utf8
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import DenseTransforms
from embershard.package.samples import offsets_of
from embershard.package.schema import Schema, Scope

SCOPES: Final[tuple[Scope, Scope]] = ("request", "example")


def scope_config(config: ParquetConfig, scope: Scope) -> ParquetConfig:
    """The inputs of one scope. The weight belongs to the candidates, the request to its row."""
    return config.model_copy(
        update={
            "dense": {name: spec for name, spec in config.dense.items() if spec.scope == scope},
            "sparse": {name: spec for name, spec in config.sparse.items() if spec.scope == scope},
            "weight": config.weight if scope == "example" else None,
            "request": config.request if scope == "request" else None,
        }
    )


class Unfolded:
    """Takes the candidates out of request rows."""

    def __init__(self, config: ParquetConfig, tasks: Mapping[str, TaskConfig]) -> None:
        needed = list(needed_columns(config, tasks))
        listed = (item.name for item in needed if item.level != "row")
        self._columns = list(dict.fromkeys(listed))

    def candidates(self, rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """All candidates, with the numbers of their rows; and the candidates of each row, ``[N]``.

        Raises:
            DataError: two columns of candidates whose lists differ in length.
        """
        counts = self._counts(rows)
        row_of = np.repeat(np.arange(len(counts)), counts)
        columns = {name: rows.batch.column(name) for name in self._columns}
        flat = {
            # A scalar is the weight of all candidates.
            name: array.flatten() if is_list(array.type) else array.take(pa.array(row_of))
            for name, array in columns.items()
        }
        return rows._replace(batch=_batch(flat), numbers=rows.numbers[row_of]), counts

    def impressions(self, rows: Rows) -> Rows:
        """A row for each candidate, with the columns of its request too."""
        candidates, counts = self.candidates(rows)
        repeated = rows.batch.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        columns = dict(zip(repeated.schema.names, repeated.columns, strict=True))
        columns |= zip(candidates.batch.schema.names, candidates.batch.columns, strict=True)
        return candidates._replace(batch=_batch(columns))

    def _counts(self, rows: Rows) -> NDArray[np.int64]:
        """The candidates of each row, ``[N]``."""
        counts: NDArray[np.int64] | None = None
        for name in self._columns:
            array = rows.batch.column(name)
            if not is_list(array.type):
                continue
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
            if counts is None:
                first, counts = name, lengths
            elif (wrong := lengths != counts).any():
                row = int(np.argmax(wrong))
                raise rows.refusal(
                    name,
                    row,
                    f"expected {counts[row]} elements, one for each candidate as in column "
                    f"{first!r}, got {lengths[row]}",
                )
        assert counts is not None, "each task has a column of labels"
        return counts


def _batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTableRows:
    """N request rows, as numpy has them; the counterpart of `TableRows`."""

    requests: TableRows
    """N rows: inputs of the request scope, and the number of each request; no labels."""

    candidates: TableRows
    """The candidates of all rows: inputs of the example scope, labels and weights."""

    offsets: NDArray[np.int64]
    """``[N + 1]``: the first candidate of each row; the last is their number."""

    schema: Schema

    def __len__(self) -> int:
        return len(self.requests)

    @classmethod
    def empty(cls, config: ParquetConfig, schema: Schema, tasks: int) -> RequestTableRows:
        """No rows, with so many tasks."""
        parts = [
            TableRows.empty(
                scope_config(config, scope),
                len(schema.dense_names(scope)),
                len(schema.sparse_names(scope)),
                tasks if scope == "example" else 0,
            )
            for scope in SCOPES
        ]
        return cls(
            requests=replace(parts[0], request=np.empty(0, np.int64)),
            candidates=parts[1],
            offsets=np.zeros(1, np.int64),
            schema=schema,
        )

    @classmethod
    def joined(cls, parts: Sequence[RequestTableRows]) -> RequestTableRows:
        """All rows of the parts, at least one part, in order."""
        return cls(
            requests=TableRows.joined([part.requests for part in parts]),
            candidates=TableRows.joined([part.candidates for part in parts]),
            offsets=offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
            schema=parts[0].schema,
        )

    def take(self, index: NDArray[np.int64]) -> RequestTableRows:
        """The rows ``index``, in that order."""
        places = JaggedColumn(np.arange(self.offsets[-1]), self.offsets).take(index)
        return RequestTableRows(
            requests=self.requests.take(index),
            candidates=self.candidates.take(places.values),
            offsets=places.offsets,
            schema=self.schema,
        )

    def part(self, first: int, stop: int) -> RequestTableRows:
        """The rows from ``first`` to before ``stop``, without a copy of their values."""
        offsets = self.offsets[first : stop + 1]
        return RequestTableRows(
            requests=self.requests.part(first, stop),
            candidates=self.candidates.part(int(offsets[0]), int(offsets[-1])),
            offsets=offsets - offsets[0],
            schema=self.schema,
        )

    def without_ids(
        self, shares: Mapping[int, tuple[float, int]], rng: np.random.Generator
    ) -> RequestTableRows:
        """See `TableRows.without_ids`."""
        own: dict[str, dict[int, tuple[float, int]]] = {"request": {}, "example": {}}
        for place, share in shares.items():
            item = self.schema.sparse[place]
            own[item.scope][self.schema.sparse_names(item.scope).index(item.name)] = share
        return RequestTableRows(
            requests=self.requests.without_ids(own["request"], rng),
            candidates=self.candidates.without_ids(own["example"], rng),
            offsets=self.offsets,
            schema=self.schema,
        )

    def to_batch(self, keys: list[str]) -> Batch:
        """A batch of all candidates, whose features of the request scope have a list for each
        request. Requests without candidates are left out."""
        counts = np.diff(self.offsets)
        requests, counts = self.requests.take(np.flatnonzero(counts)), counts[counts > 0]
        request_of = np.repeat(np.arange(len(counts)), counts)
        dense = np.empty((len(request_of), len(self.schema.dense)), np.float32)
        lists = dict[str, IdLists]()
        every = np.arange(len(request_of))
        parts = zip(SCOPES, (requests, self.candidates), (request_of, every), strict=True)
        for scope, part, rows in parts:
            places = [at for at, item in enumerate(self.schema.dense) if item.scope == scope]
            dense[:, places] = part.dense[rows]
            lists |= zip(self.schema.sparse_names(scope), part.sparse, strict=True)
        assert requests.request is not None
        batch = replace(self.candidates, sparse=[]).to_batch([])
        return batch._replace(
            dense=torch.from_numpy(dense),
            sparse=self._keyed([lists[key] for key in keys], request_of) if keys else batch.sparse,
            request=torch.from_numpy(requests.request[request_of]),
        )

    def _keyed(self, lists: Sequence[IdLists], request_of: NDArray[np.int64]) -> KeyedJaggedTensor:
        """A variable batch: a key has as many lists as its scope has rows."""
        keys = self.schema.sparse_names()
        values, lengths = flat_lists(lists)
        places = torch.from_numpy(request_of), torch.arange(len(request_of))
        inverse = [places[item.scope == "example"] for item in self.schema.sparse]
        return KeyedJaggedTensor(
            keys=keys,
            values=values,
            lengths=lengths,
            stride_per_key_per_rank=[[len(column.lengths)] for column in lists],
            inverse_indices=(keys, torch.stack(inverse)),
        )


class RequestMapper:
    """Applies a schema to request rows; the counterpart of `RowMapper`."""

    def __init__(
        self,
        config: ParquetConfig,
        tasks: Mapping[str, TaskConfig],
        schema: Schema,
        tables: Sequence[RowLookup],
    ) -> None:
        """
        Args:
            tables: of each sparse input.
        """
        self._schema, self._number_of_row = schema, config.request is None
        self._unfolded = Unfolded(config, tasks)
        self._requests, self._candidates = (
            RowMapper(
                scope_config(config, scope),
                tasks if scope == "example" else {},
                [
                    table
                    for item, table in zip(schema.sparse, tables, strict=True)
                    if item.scope == scope
                ],
                DenseTransforms(schema, scope),
            )
            for scope in SCOPES
        )

    def map(self, rows: Rows) -> RequestTableRows:
        """The same rows, transformed and mapped."""
        candidates, counts = self._unfolded.candidates(rows)
        requests = self._requests.map(rows)
        if self._number_of_row:
            requests = replace(requests, request=_row_ids(rows))
        return RequestTableRows(
            requests=requests,
            candidates=self._candidates.map(candidates),
            offsets=offsets_of(counts),
            schema=self._schema,
        )


def _row_ids(rows: Rows) -> NDArray[np.int64]:
    """A number of its own for each row of all files, int64 ``[N]``."""
    file = int(hash_utf8([rows.path.encode()])[0])
    return hash_ids(rows.numbers ^ file).view(np.int64)
