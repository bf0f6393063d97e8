"""Scores rows of Arrow with a package, in this process.

    rows ──► requests ──► C++ predictor ──► one array for each output, a value for each row

A row is an example. Rows that follow one another with equal inputs of request scope are one
request, so the user side of sorted rows is computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embershard.data.base import JaggedColumn
from embershard.data.parquet_columns import (
    NeededColumn,
    Rows,
    Use,
    column_kind,
    dense_matrix,
    raw_lists,
)
from embershard.data.parquet_config import DenseColumn, SparseColumn
from embershard.errors import DataError, EmbershardError, InputError
from embershard.package import Package, SampleRequest
from embershard.package.samples import offsets_of
from embershard.package.schema import Schema
from embershard.serving import LocalPredictor

ROWS_PER_REQUEST = 256
"""Rows of one request, for packages without inputs of request scope."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row without scores."""

    row: int
    """Its place among the rows that were given, from 0."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Outputs of N rows."""

    outputs: Mapping[str, NDArray[np.float32]]
    """By name, float32 ``[N, *shape]``; NaN in bad rows."""

    bad_rows: Sequence[BadRow]


class PreparedRows(NamedTuple):
    """Rows as requests."""

    rows: Rows
    requests: list[tuple[SampleRequest, int, int]]
    """Each with its first row and the row after its last one."""

    bad_rows: list[BadRow]


class BatchScorer:
    """Scores rows of a data set with a package; a callable for Ray Data's ``map_batches``.

    ::

        from embershard.score import BatchScorer

        scorer = BatchScorer("repository/ranker/1")
        table = scorer(pyarrow.parquet.read_table("candidates.parquet"))
        table["score"]

    Calls run one at a time. Each uses all cores.
    """

    def __init__(
        self,
        package: str | Path,
        *,
        columns: Mapping[str, str] | None = None,
        outputs: Sequence[str] = (),
        plan: str = "",
        threads: int = 0,
        slots: int = 0,
    ) -> None:
        """
        Args:
            package: folder of one version.
            columns: column of each input whose column has another name than the input.
            outputs: names of the wanted outputs. Empty: all.
            plan, threads, slots: as of ``LocalPredictor``.

        Raises:
            PackageError, PlanError: as ``LocalPredictor`` raises them.
            InputError: ``columns`` names no input, ``outputs`` no output, or the package has a
                weighted input.
        """
        self.package = Package.open(package)
        manifest = self.package.manifest
        self._schema = self.package.schema()
        inputs = [*self._schema.dense_names(), *self._schema.sparse_names()]
        for name in columns or {}:
            if name not in inputs:
                raise InputError(f"columns: expected inputs of {inputs}, got {name!r}")
        known = [output.name for output in manifest.outputs]
        for name in outputs:
            if name not in known:
                raise InputError(f"outputs: expected some of {known}, got {name!r}")
        weighted = [item.name for item in self._schema.sparse if item.weighted]
        if weighted:
            raise InputError(f"package: expected inputs without weights, got weighted {weighted}")
        self._columns = {name: (columns or {}).get(name, name) for name in inputs}
        self._dense = {
            item.name: DenseColumn(column=self._columns[item.name], null=item.default)
            for item in self._schema.dense
        }
        self._sparse = {
            name: SparseColumn(column=self._columns[name]) for name in self._schema.sparse_names()
        }
        self._shared_dense = [item.scope == "request" for item in self._schema.dense]
        self._shared_sparse = [item.scope == "request" for item in self._schema.sparse]
        has_shared = any(self._shared_dense) or any(self._shared_sparse)
        most = manifest.limits.max_examples
        self._rows_max = most if has_shared else min(most, ROWS_PER_REQUEST)
        self._outputs = [o for o in manifest.outputs if not outputs or o.name in outputs]
        self._predictor = LocalPredictor(package, plan=plan, threads=threads, slots=slots)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs."""
        return [output.name for output in self._outputs]

    @property
    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each output's value for a row."""
        return {output.name: output.shape for output in self._outputs}

    @property
    def package_digest(self) -> str:
        """SHA-256 of the package's manifest, in hex; it covers every file of the package."""
        return hashlib.sha256((self.package.path / "manifest.json").read_bytes()).hexdigest()

    @property
    def columns(self) -> list[str]:
        """Columns that are read, each once."""
        return list(dict.fromkeys(self._columns.values()))

    def check_columns(self, path: str, schema: pa.Schema) -> None:
        """Refuses rows without the columns, or with columns of other types.

        Args:
            path: file that has the columns, for messages.
            schema: types of its columns.

        Raises:
            DataError: a missing column, or one of another type.
        """
        uses: dict[str, Use] = dict.fromkeys(self._schema.dense_names(), "number")
        uses |= dict.fromkeys(self._schema.sparse_names(), "ids")
        for name, use in uses.items():
            needed = NeededColumn(self._columns[name], use, f"input {name!r}")
            column_kind(path, schema, needed)

    def __call__(self, rows: Any) -> Any:
        """The same rows, with a column for each output.

        Args:
            rows: a pyarrow Table or RecordBatch, or a dict of numpy arrays.

        Returns:
            The same kind as ``rows``; a RecordBatch gives a Table.

        Raises:
            DataError: a column is missing or has another type, or a row cannot be scored.
        """
        table = pa.table(rows) if isinstance(rows, Mapping) else rows
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        self.check_columns("rows", table.schema)
        [batch] = table.select(self.columns).combine_chunks().to_batches() or [None]
        if batch is None:
            raise DataError("rows: expected at least one, got none")
        scores = self.run(self.prepare(Rows(batch, "rows", 0, np.arange(len(batch)))))
        if scores.bad_rows:
            first, *others = scores.bad_rows
            more = f", and {len(others):,} more rows" if others else ""
            raise DataError(f"{first.reason}{more}")
        if isinstance(rows, Mapping):
            return {**rows, **scores.outputs}
        for name, values in scores.outputs.items():
            table = table.append_column(name, output_column(values))
        return table

    def prepare(self, rows: Rows) -> PreparedRows:
        """Requests of the rows; rows that make none are found by halves and become bad rows."""
        prepared = PreparedRows(rows, [], [])
        pending = [(0, len(rows.numbers))]
        while pending:
            first, stop = pending.pop()
            try:
                prepared.requests.extend(self._requests(rows.part(first, stop), first))
            except DataError as error:
                if stop - first == 1:
                    prepared.bad_rows.append(BadRow(row=first, reason=str(error)))
                else:
                    middle = (first + stop) // 2
                    pending += [(middle, stop), (first, middle)]
        return prepared

    def run(self, prepared: PreparedRows) -> Scores:
        """Outputs of prepared rows. A request that is refused is tried again in halves, until its
        bad rows are alone."""
        rows, bad_rows = prepared.rows, list(prepared.bad_rows)
        outputs = {
            output.name: np.full((len(rows.numbers), *output.shape), np.nan, np.float32)
            for output in self._outputs
        }
        requests = prepared.requests
        while requests:
            answers = self._predictor.predict_merged(
                [request for request, _, _ in requests], self.outputs
            )
            refused = list[tuple[SampleRequest, int, int]]()
            for (_, first, stop), answer in zip(requests, answers, strict=True):
                if not isinstance(answer, EmbershardError):
                    for name, values in outputs.items():
                        values[first:stop] = answer.outputs[name]
                elif stop - first == 1:
                    where = f"{rows.path}: row group {rows.group}: row {rows.numbers[first]}"
                    bad_rows.append(BadRow(row=first, reason=f"{where}: {answer}"))
                else:
                    middle = (first + stop) // 2
                    for low, high in ((first, middle), (middle, stop)):
                        refused += self._requests(rows.part(low, high), low)
            requests = refused
        return Scores(outputs=outputs, bad_rows=sorted(bad_rows, key=lambda bad: bad.row))

    def _requests(self, rows: Rows, offset: int) -> list[tuple[SampleRequest, int, int]]:
        """Requests of the rows, each with its first row and the row after its last one, counted
        from ``-offset``."""
        dense = dense_matrix(rows, self._dense)
        sparse = [raw_lists(rows, name, spec).ids().column() for name, spec in self._sparse.items()]
        starts = self._request_starts(dense, sparse)
        edges = np.append(starts, len(dense)) + offset
        requests = pack_requests(self._schema, dense, sparse, starts)
        return list(zip(requests, edges[:-1].tolist(), edges[1:].tolist(), strict=True))

    def _request_starts(
        self, dense: NDArray[np.float32], sparse: Sequence[JaggedColumn]
    ) -> NDArray[np.int64]:
        """The first row of each request, int64 ``[R]``."""
        changes = np.zeros(len(dense), np.bool_)
        changes[0] = True
        for place, is_shared in enumerate(self._shared_dense):
            if is_shared:
                changes[1:] |= dense[1:, place] != dense[:-1, place]
        for is_shared, column in zip(self._shared_sparse, sparse, strict=True):
            if is_shared:
                changes |= _differs_from_row_before(column)
        starts = np.flatnonzero(changes)
        sizes = np.diff(np.append(starts, len(dense)))
        parts = -(-sizes // self._rows_max)
        part = np.arange(int(parts.sum())) - np.repeat(offsets_of(parts)[:-1], parts)
        cut: NDArray[np.int64] = np.repeat(starts, parts) + self._rows_max * part
        return cut


def _differs_from_row_before(column: JaggedColumn) -> NDArray[np.bool_]:
    """bool ``[N]``: whether a list is another than the one before it. The first is not."""
    before = column.take(np.maximum(np.arange(len(column.lengths)) - 1, 0))
    differs: NDArray[np.bool_] = column.lengths != before.lengths
    [alike] = np.nonzero(~differs)
    own, other = column.take(alike), before.take(alike)
    places = np.flatnonzero(own.values != other.values)
    differs[alike[np.searchsorted(own.offsets, places, side="right") - 1]] = True
    return differs


def pack_requests(
    schema: Schema,
    dense: NDArray[np.float32],
    sparse: Sequence[JaggedColumn],
    starts: NDArray[np.int64],
) -> list[SampleRequest]:
    """Cuts N rows into R requests, whose arrays are views of a few large ones.

    Args:
        dense: float32 ``[N, F]``.
        sparse: ids of each sparse input, N lists each.
        starts: first row of each request, int64 ``[R]``.
    """
    sizes = np.diff(np.append(starts, len(dense)))
    request_of_row = np.repeat(np.arange(len(starts)), sizes)
    place_in_request = np.arange(len(dense)) - starts[request_of_row]
    is_shared = [item.scope == "request" for item in schema.sparse]
    # A request's lists: input after input, 1 in request scope, one for each row in example scope.
    edges = offsets_of(sum(is_shared) + sizes * (len(sparse) - sum(is_shared)))
    list_starts = np.empty(edges[-1], np.int64)
    list_lengths = np.empty(edges[-1], np.int64)
    shared_before = own_before = first_value = 0
    for shared, column in zip(is_shared, sparse, strict=True):
        if shared:
            places, rows = edges[:-1] + shared_before + sizes * own_before, starts
        else:
            before = shared_before + sizes[request_of_row] * own_before
            places, rows = edges[request_of_row] + before + place_in_request, np.arange(len(dense))
        list_starts[places] = first_value + column.offsets[rows]
        list_lengths[places] = column.lengths[rows]
        first_value += len(column.values)
        shared_before, own_before = shared_before + shared, own_before + (not shared)
    values = np.concatenate([np.empty(0, np.int64), *(column.values for column in sparse)])
    lists = JaggedColumn.of_ranges(values, list_starts, list_lengths)
    lengths = list_lengths.astype(np.int32)
    of_request = np.array([item.scope == "request" for item in schema.dense], np.bool_)
    request_dense, example_dense = dense[starts][:, of_request], dense[:, ~of_request]
    no_weights = np.empty(0, np.float32)
    value_edges = lists.offsets[edges].tolist()
    list_edges, row_edges = edges.tolist(), np.append(starts, len(dense)).tolist()
    return [
        SampleRequest(
            num_examples=row_edges[at + 1] - row_edges[at],
            request_dense=request_dense[at],
            example_dense=example_dense[row_edges[at] : row_edges[at + 1]],
            lengths=lengths[list_edges[at] : list_edges[at + 1]],
            values=lists.values[value_edges[at] : value_edges[at + 1]],
            weights=no_weights,
            outputs={},
        )
        for at in range(len(starts))
    ]


def unpack_requests(
    schema: Schema, requests: Sequence[SampleRequest]
) -> tuple[NDArray[np.float32], list[JaggedColumn]]:
    """Rows of requests, the inverse of `pack_requests`: what a request shares is repeated.

    Returns:
        Dense inputs, float32 ``[N, F]``, and N lists for each sparse input.
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


def output_column(values: NDArray[np.float32]) -> pa.Array:
    """float32 ``[N]`` as a column of float, ``[N, ...]`` as one of lists of one size."""
    if values.ndim == 1:
        return pa.array(values)
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))
