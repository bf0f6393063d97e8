"""Converts rows to requests, and requests to rows.

rows         a row is       a request has
──────────   ────────────   ─────────────────────────────────────────────────────────────
impression   an example     rows that follow one another with equal inputs of request scope
request      a request      the candidates of one row
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.data.base import JaggedColumn
from embershard.data.parquet_columns import NeededColumn, Rows, dense_matrix, raw_lists
from embershard.data.parquet_config import DenseColumn, SparseColumn
from embershard.data.parquet_requests import SCOPES, Unfolded
from embershard.package import SampleRequest
from embershard.package.samples import offsets_of
from embershard.package.schema import DenseInput, Schema, SparseInput

RowShape: TypeAlias = Literal["impression", "request"]

UNSHARED_EXAMPLES = 256
"""Most rows of a request for packages without inputs of request scope."""


class RowRequest(NamedTuple):
    request: SampleRequest
    first: int

    stop: int

    example: int
    """Position among the examples of all rows."""


class RequestReader:
    def __init__(
        self, schema: Schema, columns: Mapping[str, str], rows: RowShape, examples_max: int
    ) -> None:
        """``columns``: the column of each input. ``examples_max``: most examples of a request."""
        self._schema, self._rows = schema, rows
        self._dense = {
            scope: {
                item.name: DenseColumn(column=columns[item.name], null=item.default)
                for item in schema.dense
                if item.scope == scope
            }
            for scope in SCOPES
        }
        self._sparse = {
            item.name: SparseColumn(column=columns[item.name]) for item in schema.sparse
        }
        inputs: list[DenseInput | SparseInput] = [*schema.dense, *schema.sparse]
        is_shared = any(item.scope == "request" for item in inputs)
        cuts_requests = rows == "impression" and not is_shared
        self._examples_max = min(examples_max, UNSHARED_EXAMPLES) if cuts_requests else examples_max
        self.needed = [
            NeededColumn(
                columns[item.name],
                "number" if isinstance(item, DenseInput) else "ids",
                f"input {item.name!r}",
                "candidate" if rows == "request" and item.scope == "example" else "row",
            )
            for item in inputs
        ]
        self._unfolded = Unfolded(self.needed)

    def read(
        self, rows: Rows, first: int = 0, example: int = 0
    ) -> tuple[list[RowRequest], NDArray[np.int64]]:
        """Convert N rows. Returns requests in order, and each row's number of examples, ``[N]``.

        ``first`` and ``example`` number the first row and example. Raises DataError if a
        request cannot have a value.
        """
        candidates, counts = rows, np.ones(len(rows), np.int64)
        if self._rows == "request":
            candidates, counts = self._unfolded.candidates(rows)
        parts = {"request": rows, "example": candidates}
        shared_dense = dense_matrix(rows, self._dense["request"])
        dense = dense_matrix(candidates, self._dense["example"])
        sparse = [
            raw_lists(parts[item.scope], item.name, self._sparse[item.name]).ids().column()
            for item in self._schema.sparse
        ]
        row_of_example = np.repeat(np.arange(len(counts)), counts)
        is_start = np.diff(row_of_example, prepend=-1) > 0
        if self._rows == "impression":
            is_start = self._differs_from_row_before(shared_dense, sparse)
        starts = _cut(np.flatnonzero(is_start), len(dense), self._examples_max)
        request_rows = row_of_example[starts]
        requests = pack_requests(self._schema, shared_dense, dense, sparse, starts, request_rows)
        ends = row_of_example[np.append(starts, len(dense))[1:] - 1] + 1
        places = (request_rows + first, ends + first, starts + example)
        return list(map(RowRequest, requests, *(place.tolist() for place in places))), counts

    def _differs_from_row_before(
        self, dense: NDArray[np.float32], sparse: Sequence[JaggedColumn]
    ) -> NDArray[np.bool_]:
        """bool ``[N]``: True for the first row, or if inputs of request scope have changed."""
        differs = np.ones(len(dense), np.bool_)
        differs[1:] = (dense[1:] != dense[:-1]).any(axis=1)
        for item, column in zip(self._schema.sparse, sparse, strict=True):
            if item.scope == "request":
                differs |= _differs_from_list_before(column)
        return differs


def _cut(starts: NDArray[np.int64], count: int, size_max: int) -> NDArray[np.int64]:
    """Cut requests with the first examples ``starts``, of ``count`` in all, into ones of at most
    ``size_max`` examples. Returns their first examples."""
    sizes = np.diff(np.append(starts, count))
    parts = -(-sizes // size_max)
    part = np.arange(int(parts.sum())) - np.repeat(offsets_of(parts)[:-1], parts)
    cut: NDArray[np.int64] = np.repeat(starts, parts) + size_max * part
    return cut


def _differs_from_list_before(column: JaggedColumn) -> NDArray[np.bool_]:
    """bool ``[N]``: True if a list differs from the previous one. Always False for the first."""
    before = column.take(np.maximum(np.arange(len(column.lengths)) - 1, 0))
    differs: NDArray[np.bool_] = column.lengths != before.lengths
    [alike] = np.nonzero(~differs)
    own, other = column.take(alike), before.take(alike)
    places = np.flatnonzero(own.values != other.values)
    differs[alike[np.searchsorted(own.offsets, places, side="right") - 1]] = True
    return differs


def pack_requests(
    schema: Schema,
    shared_dense: NDArray[np.float32],
    dense: NDArray[np.float32],
    sparse: Sequence[JaggedColumn],
    starts: NDArray[np.int64],
    request_rows: NDArray[np.int64],
) -> list[SampleRequest]:
    """Make R requests from N examples. Their arrays are views of a few large ones.

    Args:
        shared_dense: dense inputs of request scope for each row, float32 ``[rows, F]``.
        dense: dense inputs of example scope, float32 ``[N, F]``.
        sparse: ids of each sparse input, with a list for each row or each example, by its scope.
        starts: first example of each request, int64 ``[R]``.
        request_rows: row whose inputs of request scope a request gets, int64 ``[R]``.
    """
    # A request takes consecutive lists of each input. Gather these blocks, [R, inputs].
    ends = np.append(starts, len(dense))[1:]
    is_shared = [item.scope == "request" for item in schema.sparse]
    firsts = np.stack([request_rows if shared else starts for shared in is_shared], axis=1)
    stops = np.stack([request_rows + 1 if shared else ends for shared in is_shared], axis=1)
    lengths = _joined_blocks([column.lengths for column in sparse], firsts, stops)
    first_values, stop_values = (
        np.stack([column.offsets[at] for column, at in zip(sparse, rows.T, strict=True)], axis=1)
        for rows in (firsts, stops)
    )
    values = _joined_blocks([column.values for column in sparse], first_values, stop_values)
    lists = lengths.values.astype(np.int32)
    list_edges, value_edges = (
        blocks.offsets[:: len(sparse)].tolist() for blocks in (lengths, values)
    )
    example_edges = np.append(starts, len(dense)).tolist()
    request_dense = shared_dense[request_rows]
    no_weights = np.empty(0, np.float32)
    return [
        SampleRequest(
            num_examples=example_edges[at + 1] - example_edges[at],
            request_dense=request_dense[at],
            example_dense=dense[example_edges[at] : example_edges[at + 1]],
            lengths=lists[list_edges[at] : list_edges[at + 1]],
            values=values.values[value_edges[at] : value_edges[at + 1]],
            weights=no_weights,
            outputs={},
        )
        for at in range(len(starts))
    ]


def _joined_blocks(
    columns: Sequence[NDArray[np.int64]], firsts: NDArray[np.int64], stops: NDArray[np.int64]
) -> JaggedColumn:
    """Concatenate the parts ``[first, stop)``, ``[R, columns]``, of all columns, row by row."""
    column_starts = offsets_of(np.array([len(column) for column in columns]))[:-1]
    return JaggedColumn.of_ranges(
        np.concatenate(columns), (firsts + column_starts).ravel(), (stops - firsts).ravel()
    )


def unpack_requests(
    schema: Schema, requests: Sequence[SampleRequest]
) -> tuple[NDArray[np.float32], list[JaggedColumn]]:
    """Convert requests to rows. Inputs of request scope are repeated for each example.

    Returns dense inputs, float32 ``[N, F]``, and N lists for each sparse input.
    """
    sizes = np.array([request.num_examples for request in requests], np.int64)
    starts = offsets_of(sizes)[:-1]
    request_of_row = np.repeat(np.arange(len(sizes)), sizes)
    place_in_request = np.arange(len(request_of_row)) - starts[request_of_row]
    dense = np.empty((len(request_of_row), len(schema.dense)), np.float32)
    of_request = np.array([item.scope == "request" for item in schema.dense], np.bool_)
    dense[:, of_request] = np.stack([r.request_dense for r in requests])[request_of_row]
    dense[:, ~of_request] = np.concatenate([r.example_dense for r in requests])
    lengths = np.concatenate([request.lengths for request in requests])
    values = np.concatenate([request.values for request in requests])
    lists = JaggedColumn(values, offsets_of(lengths))
    is_shared = [item.scope == "request" for item in schema.sparse]
    edges = offsets_of(sum(is_shared) + sizes * (len(is_shared) - sum(is_shared)))
    columns, place = [], edges[:-1]
    for shared in is_shared:
        rows = place[request_of_row]
        columns.append(lists.take(rows if shared else rows + place_in_request))
        place = place + (1 if shared else sizes)
    return dense, columns
