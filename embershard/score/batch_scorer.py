"""Scores rows of Arrow with a package, in this process.

rows ──► requests ──► C++ predictor ──► one array for each output, a value for each example
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

from embershard.data.parquet_columns import Rows, column_kind
from embershard.errors import DataError, EmbershardError, InputError
from embershard.package import Package
from embershard.package.samples import offsets_of
from embershard.package.schema import DenseInput, SparseInput
from embershard.score.requests import RequestReader, RowRequest, RowShape
from embershard.serving import LocalPredictor


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    row: int
    """Position in the passed rows, from 0."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Outputs of N rows with E examples. An impression row has one example."""

    outputs: Mapping[str, NDArray[np.float32]]
    """By name, float32 ``[E, *shape]``; NaN for the examples of bad rows."""

    bad_rows: Sequence[BadRow]
    offsets: NDArray[np.int64] | None
    """First example of each request row, ``[N + 1]``; the last is E. None for impression rows."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of N values by output. For request rows, each value is an array of scores."""
        if self.offsets is None:
            return dict(self.outputs)
        return {
            name: np.fromiter(np.split(values, self.offsets[1:-1]), object)
            for name, values in self.outputs.items()
        }

    def columns(self) -> dict[str, pa.Array]:
        """Columns of N values by output. For request rows, each value is a list of scores."""
        return {name: output_column(values, self.offsets) for name, values in self.outputs.items()}


class PreparedRows(NamedTuple):
    rows: Rows
    requests: list[RowRequest]
    counts: NDArray[np.int64]

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
        rows: RowShape = "impression",
        plan: str = "",
        threads: int = 0,
        slots: int = 0,
    ) -> None:
        """
        Args:
            package: folder of one version.
            columns: column of each input whose column has another name than the input.
            outputs: names of the wanted outputs. Empty: all.
            rows: ``impression``: a row is an example. ``request``: a row is a request; inputs of
                example scope have a list with an element for each candidate, and so have outputs.
            plan, threads, slots: arguments of ``LocalPredictor``.

        Raises:
            PackageError, PlanError: as ``LocalPredictor`` raises them.
            InputError: ``columns`` names no input, ``outputs`` no output, the package has a
                weighted input, or request rows are to be scored without an input of example scope.
        """
        self.package = Package.open(package)
        manifest, schema = self.package.manifest, self.package.schema()
        inputs = [*schema.dense_names(), *schema.sparse_names()]
        for name in columns or {}:
            if name not in inputs:
                raise InputError(f"columns: expected inputs of {inputs}, got {name!r}")
        known = [output.name for output in manifest.outputs]
        for name in outputs:
            if name not in known:
                raise InputError(f"outputs: expected some of {known}, got {name!r}")
        weighted = [item.name for item in schema.sparse if item.weighted]
        if weighted:
            raise InputError(f"package: expected inputs without weights, got weighted {weighted}")
        own = [*schema.dense_names("example"), *schema.sparse_names("example")]
        if rows == "request" and not own:
            raise InputError(
                "package: expected an input of scope 'example' for request rows, got none"
            )
        self.rows: RowShape = rows
        self._columns = {name: (columns or {}).get(name, name) for name in inputs}
        self._reader = RequestReader(schema, self._columns, rows, manifest.limits.max_examples)
        self._outputs = [o for o in manifest.outputs if not outputs or o.name in outputs]
        self._predictor = LocalPredictor(package, plan=plan, threads=threads, slots=slots)

    @property
    def outputs(self) -> list[str]:
        return [output.name for output in self._outputs]

    @property
    def output_shapes(self) -> dict[str, tuple[int, ...]]:
        return {output.name: output.shape for output in self._outputs}

    @property
    def package_digest(self) -> str:
        """SHA-256 of the package's manifest, in hex; it covers every file of the package."""
        return hashlib.sha256((self.package.path / "manifest.json").read_bytes()).hexdigest()

    @property
    def columns(self) -> list[str]:
        """Columns that are read, without duplicates."""
        return list(dict.fromkeys(self._columns.values()))

    def check_columns(self, path: str, schema: pa.Schema) -> None:
        """Raise DataError if a column is missing or of the wrong type. ``path`` is for messages."""
        for needed in self._reader.needed:
            column_kind(path, schema, needed)

    def check_key(self, column: str) -> None:
        """Refuse a key that differs between the examples of a request, such as an item's id, if an
        output has one value per request, such as a user's vector.

        Raises InputError if only inputs of example scope read the column.
        """
        schema = self.package.schema()
        items: list[DenseInput | SparseInput] = [*schema.dense, *schema.sparse]
        readers = [item for item in items if self._columns[item.name] == column]
        of_request = [output.name for output in self._outputs if output.scope == "request"]
        if of_request and readers and all(item.scope == "example" for item in readers):
            raise InputError(
                f"--key: expected a column of request scope for output {of_request[0]!r}, which "
                f"has one value a request, got {column!r} of input {readers[0].name!r}, whose "
                "scope is 'example'"
            )

    def __call__(self, rows: Any) -> Any:
        """Add a column for each output to rows. `score_columns` names the columns.

        Args:
            rows: a pyarrow Table or RecordBatch, or a dict of numpy arrays.

        Returns:
            The same type as ``rows``, but a Table for a RecordBatch.

        Raises:
            InputError: see `score_columns`.
            DataError: a column is missing or has the wrong type, or a row cannot be scored.
        """
        table = pa.table(rows) if isinstance(rows, Mapping) else rows
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        self.check_columns("rows", table.schema)
        names = score_columns(self.outputs, table.column_names)
        [batch] = table.select(self.columns).combine_chunks().to_batches() or [None]
        if batch is None:
            raise DataError("rows: expected at least one, got none")
        scores = self.run(self.prepare(Rows(batch, "rows", 0, np.arange(len(batch)))))
        if scores.bad_rows:
            first, *others = scores.bad_rows
            more = f", and {len(others):,} more rows" if others else ""
            raise DataError(f"{first.reason}{more}")
        if isinstance(rows, Mapping):
            return {**rows, **{names[name]: array for name, array in scores.arrays().items()}}
        for name, column in scores.columns().items():
            table = table.append_column(names[name], column)
        return table

    def prepare(self, rows: Rows) -> PreparedRows:
        """If making requests fails, halves are tried until the bad rows are found."""
        requests, bad_rows = list[RowRequest](), list[BadRow]()
        counts = np.full(len(rows), int(self.rows == "impression"), np.int64)
        pending = [(0, len(counts))] if len(counts) else []
        while pending:
            first, stop = pending.pop()
            try:
                part, part_counts = self._reader.read(
                    rows.part(first, stop), first, int(counts[:first].sum())
                )
            except DataError as error:
                if stop - first == 1:
                    bad_rows.append(BadRow(row=first, reason=str(error)))
                else:
                    middle = (first + stop) // 2
                    pending += [(middle, stop), (first, middle)]
            else:
                requests += part
                counts[first:stop] = part_counts
        return PreparedRows(rows, requests, counts, bad_rows)

    def run(self, prepared: PreparedRows) -> Scores:
        """A refused request is split into halves and tried again, until its bad rows are found."""
        rows, requests = prepared.rows, prepared.requests
        bad_rows = {bad.row: bad for bad in prepared.bad_rows}
        offsets = offsets_of(prepared.counts)
        outputs = {
            output.name: np.full((offsets[-1], *output.shape), np.nan, np.float32)
            for output in self._outputs
        }
        while requests:
            answers = self._predictor.predict_merged(
                [part.request for part in requests], self.outputs
            )
            halves = list[RowRequest]()
            for part, answer in zip(requests, answers, strict=True):
                if not isinstance(answer, EmbershardError):
                    for name, values in outputs.items():
                        stop = part.example + part.request.num_examples
                        values[part.example : stop] = answer.outputs[name]
                elif part.stop - part.first == 1:
                    where = f"{rows.path}: row group {rows.group}: row {rows.numbers[part.first]}"
                    bad = BadRow(row=part.first, reason=f"{where}: {answer}")
                    bad_rows.setdefault(part.first, bad)
                else:
                    middle = (part.first + part.stop) // 2
                    for first, stop in ((part.first, middle), (middle, part.stop)):
                        halves += self._reader.read(rows.part(first, stop), first, first)[0]
            requests = halves
        return Scores(
            outputs=outputs,
            bad_rows=[bad_rows[row] for row in sorted(bad_rows)],
            offsets=offsets if self.rows == "request" else None,
        )


def score_columns(outputs: Sequence[str], kept: Sequence[str]) -> dict[str, str]:
    """Choose the column of each output: its name, or its name and ``_score`` if a kept column has
    the name, such as the label of the same task. Raises InputError if both names are taken."""
    columns = {name: f"{name}_score" if name in kept else name for name in outputs}
    for name, column in columns.items():
        if column in kept or list(columns.values()).count(column) > 1:
            raise InputError(
                f"output {name!r}: expected that the name {name!r} or {column!r} is free, got "
                "columns or outputs with both names; keep fewer columns (--keep), or rename one"
            )
    return columns


def output_column(
    values: NDArray[np.float32], offsets: NDArray[np.int64] | None = None
) -> pa.Array:
    """Convert ``[E]`` to floats, ``[E, ...]`` to fixed-size lists. With offsets, a row gets a list
    of the values of its examples."""
    column = pa.array(values.reshape(-1))
    if values.ndim > 1:
        column = pa.FixedSizeListArray.from_arrays(column, int(np.prod(values.shape[1:])))
    if offsets is None:
        return column
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), column)
