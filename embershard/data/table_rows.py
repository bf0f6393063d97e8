"""Rows that a model takes: transformed, with ids mapped to rows of tables.

`TableRows`     one example a row
`RequestRows`   one request a row, and the candidates of all requests
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embershard.data.base import JaggedColumn
from embershard.data.id_lists import IdLists
from embershard.data.splits import Batch
from embershard.jagged import KeyedJaggedTensor
from embershard.package.samples import offsets_of
from embershard.package.schema import Schema

Shares = Mapping[str, tuple[float, int]]
"""By sparse input: the share of ids to replace, and the row of unknown ids."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """N rows."""

    arrays: Mapping[str, NDArray[Any]]
    """``dense`` float32 ``[N, F]`` and ``labels`` float32 ``[N, T]``; if there are any, also
    ``weights`` float32 ``[N]`` and ``request`` int64 ``[N]``."""

    sparse: Mapping[str, IdLists]

    def __len__(self) -> int:
        return len(self.arrays["dense"])

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        if len(parts) == 1:
            return parts[0]
        names, inputs = parts[0].arrays, parts[0].sparse
        return cls(
            {name: np.concatenate([part.arrays[name] for part in parts]) for name in names},
            {name: IdLists.joined([part.sparse[name] for part in parts]) for name in inputs},
        )

    def take(self, index: NDArray[np.int64]) -> TableRows:
        """The rows ``index``, in that order."""
        return TableRows(
            {name: array[index] for name, array in self.arrays.items()},
            {name: lists.take(index) for name, lists in self.sparse.items()},
        )

    def part(self, first: int, stop: int) -> TableRows:
        """The rows from ``first`` up to ``stop``, without a copy of their values."""
        return TableRows(
            {name: array[first:stop] for name, array in self.arrays.items()},
            {name: lists.part(first, stop) for name, lists in self.sparse.items()},
        )

    def without_ids(self, shares: Shares, rng: np.random.Generator) -> TableRows:
        """The same rows, with some ids of its inputs replaced by unknown ones."""
        sparse = dict(self.sparse)
        for name, (share, unknown_row) in shares.items():
            if name in sparse:
                values, offsets = sparse[name]
                is_forgotten = rng.random(len(values)) < share
                sparse[name] = IdLists(np.where(is_forgotten, unknown_row, values), offsets)
        return TableRows(self.arrays, sparse)

    def to_batch(self, schema: Schema) -> Batch:
        """Tensors of their own memory."""
        keys = schema.sparse_names()
        values, lengths = _flat([self.sparse[key] for key in keys])
        return self._batch(
            self.arrays["dense"], KeyedJaggedTensor(keys=keys, values=values, lengths=lengths)
        )

    def _batch(self, dense: NDArray[np.float32], sparse: KeyedJaggedTensor) -> Batch:
        labels = self.arrays["labels"]
        others = {
            name: torch.from_numpy(np.array(self.arrays[name]))
            for name in ("weights", "request")
            if name in self.arrays
        }
        return Batch(
            torch.from_numpy(np.array(dense)),
            sparse,
            torch.from_numpy(np.array(labels if labels.shape[1] > 1 else labels[:, 0])),
            **others,
        )


@dataclass(frozen=True, slots=True)
class RequestRows:
    """N requests with their candidates."""

    requests: TableRows
    """``[N]``: inputs of the request scope, and the number of each request; no labels."""

    candidates: TableRows
    """Candidates of all requests: inputs of the example scope, labels and weights."""

    offsets: NDArray[np.int64]
    """``[N + 1]``: the first candidate of each request; the last is their number."""

    def __len__(self) -> int:
        return len(self.requests)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        return cls(
            TableRows.joined([part.requests for part in parts]),
            TableRows.joined([part.candidates for part in parts]),
            offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
        )

    def take(self, index: NDArray[np.int64]) -> RequestRows:
        """The requests ``index``, in that order."""
        places = JaggedColumn(np.arange(self.offsets[-1]), self.offsets).take(index)
        return RequestRows(
            self.requests.take(index), self.candidates.take(places.values), places.offsets
        )

    def part(self, first: int, stop: int) -> RequestRows:
        """The requests from ``first`` up to ``stop``, without a copy of their values."""
        offsets = self.offsets[first : stop + 1]
        return RequestRows(
            self.requests.part(first, stop),
            self.candidates.part(int(offsets[0]), int(offsets[-1])),
            offsets - offsets[0],
        )

    def without_ids(self, shares: Shares, rng: np.random.Generator) -> RequestRows:
        """The same requests, with some ids replaced by unknown ones."""
        return replace(
            self,
            requests=self.requests.without_ids(shares, rng),
            candidates=self.candidates.without_ids(shares, rng),
        )

    def to_batch(self, schema: Schema) -> Batch:
        """A batch of all candidates. Requests without candidates are left out."""
        counts = np.diff(self.offsets)
        requests, counts = self.requests.take(np.flatnonzero(counts)), counts[counts > 0]
        request_of = np.repeat(np.arange(len(counts)), counts)
        dense = np.empty((len(request_of), len(schema.dense)), np.float32)
        is_shared = np.array([item.scope == "request" for item in schema.dense], np.bool_)
        dense[:, is_shared] = requests.arrays["dense"][request_of]
        dense[:, ~is_shared] = self.candidates.arrays["dense"]
        lists = {**requests.sparse, **self.candidates.sparse}
        batch = self.candidates._batch(dense, _keyed_by_scope(schema, lists, request_of))
        request = torch.from_numpy(requests.arrays["request"][request_of])
        return batch._replace(request=request)


def _keyed_by_scope(
    schema: Schema, lists: Mapping[str, IdLists], request_of: NDArray[np.int64]
) -> KeyedJaggedTensor:
    """A variable batch: keys of the request scope have a list for each request."""
    keys = schema.sparse_names()
    values, lengths = _flat([lists[key] for key in keys])
    if not keys:
        return KeyedJaggedTensor(keys=keys, values=values, lengths=lengths)
    places = torch.from_numpy(request_of), torch.arange(len(request_of))
    inverse = [places[item.scope == "example"] for item in schema.sparse]
    return KeyedJaggedTensor(
        keys=keys,
        values=values,
        lengths=lengths,
        stride_per_key_per_rank=[[len(lists[key].lengths)] for key in keys],
        inverse_indices=(keys, torch.stack(inverse)),
    )


def _flat(lists: Sequence[IdLists]) -> tuple[Tensor, Tensor]:
    """Values and lengths of all lists, int64, in memory of their own."""
    nothing = np.empty(0, np.int64)
    values = np.concatenate([nothing, *(part.values for part in lists)], dtype=np.int64)
    lengths = np.concatenate([nothing, *(part.lengths for part in lists)])
    return torch.from_numpy(values), torch.from_numpy(lengths)
