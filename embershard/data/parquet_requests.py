"""Request rows. Each has one request, and lists with an element for each candidate.

    row    user   item              clicked
    ────   ────   ───────────────   ─────────
    0      u1     [i1, i2, i3]      [1, 0, 0]     3 candidates
    1      u2     []                []            none
    2      u3     [i1, i4]          [0, 1]        2 candidates

Columns of candidates are flattened first. The code for impression rows then reads the candidates,
and reads the columns of the request from the row itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from embershard.data.parquet_columns import NeededColumn, Rows, is_list, needed_columns
from embershard.data.parquet_config import ParquetConfig
from embershard.data.parquet_rows import RowLookup, RowMapper
from embershard.data.table_rows import RequestRows, TableRows
from embershard.data.tasks import TaskConfig
from embershard.ids import hash_ids, hash_utf8
from embershard.modules import DenseTransforms
from embershard.package.samples import offsets_of
from embershard.package.schema import Schema, Scope

SCOPES: Final[tuple[Scope, Scope]] = ("request", "example")


def scope_config(config: ParquetConfig, scope: Scope) -> ParquetConfig:
    """The configuration with the inputs of one scope. The weight belongs to the candidates, and the
    request to its row."""
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

    def __init__(self, needed: Iterable[NeededColumn]) -> None:
        """Unfold the ``needed`` columns of another level than ``row``."""
        listed = (item.name for item in needed if item.level != "row")
        self._columns = list(dict.fromkeys(listed))

    def candidates(self, rows: Rows) -> tuple[Rows, NDArray[np.int64]]:
        """All candidates, with the numbers of their rows; and the number of candidates of each row,
        int64 ``[N]``. Raises DataError for two columns of candidates whose lists differ in
        length."""
        counts = self._counts(rows)
        row_of = np.repeat(np.arange(len(counts)), counts)
        columns = {name: rows.batch.column(name) for name in self._columns}
        flat = {
            # A scalar is the weight of all candidates.
            name: array.flatten() if is_list(array.type) else array.take(pa.array(row_of))
            for name, array in columns.items()
        }
        return replace(rows, batch=_batch(flat), numbers=rows.numbers[row_of]), counts

    def impressions(self, rows: Rows) -> Rows:
        """A row for each candidate, which has the columns of its request, too."""
        candidates, counts = self.candidates(rows)
        repeated = rows.batch.take(pa.array(np.repeat(np.arange(len(counts)), counts)))
        columns = dict(zip(repeated.schema.names, repeated.columns, strict=True))
        columns |= zip(candidates.batch.schema.names, candidates.batch.columns, strict=True)
        return replace(candidates, batch=_batch(columns))

    def _counts(self, rows: Rows) -> NDArray[np.int64]:
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
        assert counts is not None, "a column has lists of candidates"
        return counts


def _batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


class RequestMapper:
    """Maps request rows; the counterpart of `RowMapper`."""

    def __init__(
        self,
        config: ParquetConfig,
        tasks: Mapping[str, TaskConfig],
        lookups: Mapping[str, RowLookup],
        schema: Schema,
    ) -> None:
        self._has_numbers = config.request is not None
        self._unfolded = Unfolded(needed_columns(config, tasks))
        self._requests, self._candidates = (
            RowMapper(
                scope_config(config, scope),
                tasks if scope == "example" else {},
                lookups,
                DenseTransforms(schema, scope),
            )
            for scope in SCOPES
        )

    def map(self, rows: Rows) -> RequestRows:
        candidates, counts = self._unfolded.candidates(rows)
        requests = self._requests.map(rows)
        if not self._has_numbers:
            requests = TableRows({**requests.arrays, "request": _row_ids(rows)}, requests.sparse)
        return RequestRows(requests, self._candidates.map(candidates), offsets_of(counts))


def _row_ids(rows: Rows) -> NDArray[np.int64]:
    """A number for each row that differs from those of all other rows, int64 ``[N]``."""
    file = int(hash_utf8([rows.path.encode()])[0])
    return hash_ids(rows.numbers ^ file).view(np.int64)
