"""Compares served requests with training rows, to find inputs and scores that have drifted.

recording ──► requests ──┐
                         ├──► columns of inputs and outputs ──► drift of each
Parquet ────► requests ──┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.bench.recording import recorded_samples
from embershard.data.drift import LARGE_DRIFT, id_drift, stability_index, value_drift
from embershard.data.id_lists import IdLists
from embershard.data.parquet_files import find_files, read_footers
from embershard.data.parquet_sample import sample_parts
from embershard.errors import DataError
from embershard.formatting import table_lines
from embershard.package import SampleRequest
from embershard.package.id_maps import ZERO_ROW, Hash
from embershard.package.schema import Schema, SparseInput
from embershard.score.batch_scorer import BadRow, BatchScorer
from embershard.score.requests import unpack_requests

MEASURES: Final = {
    "values": "mean",
    "ids": "different ids",
    "lengths": "mean",
    "unknown ids": "share",
    "scores": "mean",
}
"""The measure that is shown for each kind of figure."""


class Figure(NamedTuple):
    """One property of an input or output, in training and in serving."""

    kind: str
    """A key of `MEASURES`."""

    name: str

    train: float
    served: float
    drift: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    requests: int

    examples: int

    rows: int

    bad_rows: Sequence[BadRow]
    """Training rows without scores."""

    figures: Sequence[Figure]

    def moved(self, limit: float = LARGE_DRIFT) -> list[Figure]:
        """Figures with a drift above the limit, by descending drift."""
        moved = [figure for figure in self.figures if figure.drift > limit]
        return sorted(moved, key=lambda figure: -figure.drift)

    def to_text(self, limit: float = LARGE_DRIFT) -> str:
        """Format a table for each kind of figure. The last line names those above the limit."""
        lines = [
            f"{self.requests:,} served requests with {self.examples:,} examples, compared with "
            f"{self.rows:,} training rows"
        ]
        if self.bad_rows:
            lines.append(
                f"training rows without scores: {len(self.bad_rows):,}; the first: "
                f"{self.bad_rows[0].reason}"
            )
        for kind, figures in groupby(self.figures, key=lambda figure: figure.kind):
            measure = MEASURES[kind]
            head = [kind, f"{measure}, training", f"{measure}, served", "drift"]
            lines += ["", *table_lines(head, (
                [name, f"{train:.4g}", f"{served:.4g}", f"{drift:.3f}"]
                for _, name, train, served, drift in figures
            ))]  # fmt: skip
        moved = ", ".join(
            f"{figure.kind} of {figure.name} {figure.drift:.2f}" for figure in self.moved(limit)
        )
        verdict = f"moved since training: {moved}" if moved else "nothing moved much"
        return "\n".join([*lines, "", f"{verdict} (drift above {limit:g})"]) + "\n"


def compare(
    scorer: BatchScorer, recording: Path, patterns: Sequence[str], *, requests: int, rows: int
) -> Skew:
    """Compare a recording with rows of Parquet files, scored by the package.

    Args:
        scorer: the package, with the schema of the recorded one.
        recording: file of ``embershard serve --record``.
        patterns: files, folders, globs and URLs of the training data.
        requests: largest number of requests to compare, spread over the recording.
        rows: about the largest number of rows to compare, spread over the files.

    Raises:
        InputError: the recording is damaged, has another schema, or has no answered requests.
        DataError: there are no files, a file is damaged, a column is missing or has the wrong type,
            or no row can be converted to a request.
    """
    schema = scorer.package.schema()
    samples = recorded_samples(recording, scorer.package.manifest, most=requests)
    served = _side_of_requests(schema, samples, scorer.output_shapes)
    train, bad_rows = _side_of_rows(schema, scorer, patterns, rows)
    return Skew(
        requests=len(samples),
        examples=len(served.dense),
        rows=len(train.dense),
        bad_rows=bad_rows,
        figures=list(_figures(schema, train, served)),
    )


class _Side(NamedTuple):
    """N examples from training or from serving."""

    dense: NDArray[np.float32]
    """``[N, F]``."""

    sparse: Sequence[IdLists]
    outputs: Mapping[str, NDArray[np.float32]]
    """All finite values of each output, flat."""


def _side_of_requests(
    schema: Schema, samples: Sequence[SampleRequest], outputs: Mapping[str, tuple[int, ...]]
) -> _Side:
    dense, sparse = unpack_requests(schema, samples)
    lists = [
        IdLists(*column).at_most(item.max_ids, item.keep)
        for item, column in zip(schema.sparse, sparse, strict=True)
    ]
    values = {
        name: np.concatenate(
            [
                np.broadcast_to(sample.outputs[name], (sample.num_examples, *shape)).reshape(-1)
                for sample in samples
                if name in sample.outputs
            ]
            or [np.empty(0, np.float32)]
        )
        for name, shape in outputs.items()
    }
    return _Side(dense, lists, values)


def _side_of_rows(
    schema: Schema, scorer: BatchScorer, patterns: Sequence[str], rows: int
) -> tuple[_Side, list[BadRow]]:
    """Also returns the rows without scores."""
    files = find_files(patterns, "--data")
    for file, footer in zip(files, read_footers(files), strict=True):
        scorer.check_columns(file.path, footer.schema)
    parts, bad_rows = list[_Side](), list[BadRow]()
    for part in sample_parts(files, scorer.columns, rows):
        prepared = scorer.prepare(part)
        scores = scorer.run(prepared)
        bad_rows += scores.bad_rows
        if prepared.requests:
            side = _side_of_requests(schema, [part.request for part in prepared.requests], {})
            outputs = {name: out[np.isfinite(out)] for name, out in scores.outputs.items()}
            parts.append(side._replace(outputs=outputs))
    if not parts:
        reason = f"; the first of {len(bad_rows):,}: {bad_rows[0].reason}" if bad_rows else ""
        raise DataError(f"--data: expected rows that can be scored, got none{reason}")
    side = _Side(
        np.concatenate([part.dense for part in parts]),
        [IdLists.joined(lists) for lists in zip(*(part.sparse for part in parts), strict=True)],
        {
            name: np.concatenate([part.outputs[name] for part in parts])
            for name in scorer.output_shapes
        },
    )
    return side, bad_rows


def _figures(schema: Schema, train: _Side, served: _Side) -> Iterator[Figure]:
    for column, name in enumerate(schema.dense_names()):
        yield _value_figure("values", name, train.dense[:, column], served.dense[:, column])
    inputs = list(zip(schema.sparse, train.sparse, served.sparse, strict=True))
    for item, own, other in inputs:
        count, other_count = len(np.unique(own.values)), len(np.unique(other.values))
        yield Figure("ids", item.name, count, other_count, id_drift(own.values, other.values))
    for item, own, other in inputs:
        yield _value_figure("lengths", item.name, own.lengths, other.lengths)
    for item, own, other in inputs:
        if not isinstance(item.ids, Hash):
            yield _unknown_figure(item, own.values, other.values)
    for name, values in train.outputs.items():
        if len(values) and len(served.outputs[name]):
            yield _value_figure("scores", name, values, served.outputs[name])


def _value_figure(kind: str, name: str, train: NDArray[Any], served: NDArray[Any]) -> Figure:
    mean, other_mean = (float(values.mean(dtype=np.float64)) for values in (train, served))
    return Figure(kind, name, mean, other_mean, value_drift(train, served))


def _unknown_figure(
    item: SparseInput, train: NDArray[np.int64], served: NDArray[np.int64]
) -> Figure:
    counts, other_counts = (_count_unknown(item, ids) for ids in (train, served))
    share, other_share = (float(pair[0] / max(1, pair.sum())) for pair in (counts, other_counts))
    return Figure(
        "unknown ids", item.name, share, other_share, stability_index(counts, other_counts)
    )


def _count_unknown(item: SparseInput, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Unknown and known ids, ``[2]``."""
    assert item.ids is not None
    unknown = int((item.ids.lookup(ids) == ZERO_ROW).sum())
    return np.array([unknown, len(ids) - unknown])
