"""Describes the labels, dense inputs and ids of each split, and their drift from the training
split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from embershard.data.drift import LARGE_DRIFT, id_drift, value_drift
from embershard.data.parquet_config import SPLITS
from embershard.data.splits import Batch, Split
from embershard.formatting import table_lines
from embershard.package.id_maps import ZERO_ROW, Identity, Vocabulary
from embershard.package.schema import Schema, SparseInput

BATCH = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskDescription:
    """Labels of one task in one split."""

    mean: float
    """Mean label; NaN if no label counts."""

    counted: int
    """Labels that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseDescription:
    """One dense input in one split, after its transforms."""

    mean: float
    deviation: float
    minimum: float
    maximum: float
    drift: float
    """From the training split; 0 for that split itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseDescription:
    """One sparse input in one split, after its id map."""

    ids_per_row: float
    longest: int
    empty: float
    """Share of rows without an id."""

    unknown: float
    """Share of ids that the id map does not know."""

    drift: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDescription:
    """One split, described by the rows that were read."""

    rows: int
    read: int
    tasks: Mapping[str, TaskDescription]
    dense: Mapping[str, DenseDescription]
    sparse: Mapping[str, SparseDescription]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDescription:
    """All splits of a data set."""

    name: str
    schema: Schema
    splits: Mapping[str, SplitDescription]
    """``train``, ``valid`` and ``test``, but for splits without rows."""

    null_shares: Mapping[str, float]
    """Share of nulls of dense inputs in all files, except inputs of which it is not known."""

    def moved(self) -> list[str]:
        """Inputs with large drift, as "<input> (<split> <drift>)"."""
        return [
            f"{name} ({split} {item.drift:.2f})"
            for split, described in self.splits.items()
            for inputs in (described.dense, described.sparse)
            for name, item in inputs.items()
            if item.drift > LARGE_DRIFT
        ]

    def to_text(self) -> str:
        """Tables of rows, tasks, dense and sparse inputs; then the inputs that moved."""
        names, splits = list(self.splits), list(self.splits.values())
        rows = ", ".join(f"{name} {split.rows:,}" for name, split in self.splits.items())
        lines = [f"{self.name}: {rows} rows"]
        if any(split.read < split.rows for split in splits):
            read = ", ".join(f"{split.read:,}" for split in splits)
            lines.append(f"described by {read} of them")
        if without := [name for name in SPLITS if name not in names]:
            lines.append(f"without rows: {', '.join(without)}")
        lines += ["", *table_lines(["task", *(f"mean label, {name}" for name in names)], (
            [task, *(_task_text(split.tasks[task]) for split in splits)]
            for task in splits[0].tasks
        ))]  # fmt: skip
        drift = [f"drift, {name}" for name in names[1:]]
        if self.schema.dense:
            nulls = ["nulls"] if self.null_shares else []
            heading = ["dense input, after transforms", "mean", "deviation", "range"]
            lines += ["", *table_lines([*heading, *nulls, *drift], (
                self._dense_cells(item.name) for item in self.schema.dense
            ))]  # fmt: skip
        if self.schema.sparse:
            unknown = [f"unknown, {name}" for name in names]
            heading = ["sparse input", "rows", "ids a row", "longest", "empty", *unknown, *drift]
            lines += ["", *table_lines(heading, map(self._sparse_cells, self.schema.sparse))]
        moved = self.moved()
        verdict = f"moved since training: {', '.join(moved)}" if moved else "no input moved much"
        return "\n".join([*lines, "", f"{verdict} (drift above {LARGE_DRIFT} is large)"]) + "\n"

    def _dense_cells(self, name: str) -> list[str]:
        train, *others = (split.dense[name] for split in self.splits.values())
        extent = f"{train.minimum:.4g} .. {train.maximum:.4g}"
        nulls = [f"{self.null_shares[name]:.1%}" if name in self.null_shares else "-"]
        return [
            name,
            f"{train.mean:.4g}",
            f"{train.deviation:.4g}",
            extent,
            *(nulls if self.null_shares else []),
            *(f"{other.drift:.3f}" for other in others),
        ]

    def _sparse_cells(self, item: SparseInput) -> list[str]:
        splits = [split.sparse[item.name] for split in self.splits.values()]
        rows = "-" if item.ids is None else f"{item.ids.num_rows:,}"
        return [
            item.name,
            rows,
            f"{splits[0].ids_per_row:.3g}",
            f"{splits[0].longest}",
            f"{splits[0].empty:.1%}",
            *(f"{split.unknown:.1%}" for split in splits),
            *(f"{split.drift:.3f}" for split in splits[1:]),
        ]


def describe_splits(
    name: str,
    schema: Schema,
    splits: Mapping[str, Split],
    tasks: Sequence[str],
    *,
    rows: int,
    null_shares: Mapping[str, float] | None = None,
) -> DataDescription:
    """Read at most ``rows`` rows of each split, drawn over the whole of it, and describe them. The
    others are compared with ``train``, the first. ``tasks`` are names of the columns of labels.
    ``null_shares`` has the share of nulls of dense inputs before a declared value replaces them."""
    described, reference = dict[str, SplitDescription](), None
    for split_name, split in splits.items():
        if not len(split):
            continue
        read = _read(split, schema, rows)
        reference = read if reference is None else reference
        described[split_name] = _described(len(split), read, reference, schema, tasks)
    return DataDescription(
        name=name, schema=schema, splits=described, null_shares=null_shares or {}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows of one split, as the model sees them."""

    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    """``[N, T]``."""

    values: Mapping[str, NDArray[np.int64]]
    lengths: Mapping[str, NDArray[np.int64]]


def _read(split: Split, schema: Schema, rows: int) -> _Rows:
    batches, read = list[Batch](), 0
    for batch in split.batches(batch_size=BATCH, shuffle_seed=0 if len(split) > rows else None):
        batches.append(batch)
        read += len(batch.labels)
        if read >= rows:
            break
    lists = [batch.sparse.to_dict() for batch in batches]
    names = schema.sparse_names()
    labels = [batch.labels.reshape(len(batch.labels), -1).numpy() for batch in batches]
    return _Rows(
        dense=np.concatenate([batch.dense.numpy() for batch in batches]),
        labels=np.concatenate(labels),
        values={name: np.concatenate([part[name].values() for part in lists]) for name in names},
        lengths={name: np.concatenate([part[name].lengths() for part in lists]) for name in names},
    )


def _described(
    rows: int, split: _Rows, train: _Rows, schema: Schema, tasks: Sequence[str]
) -> SplitDescription:
    return SplitDescription(
        rows=rows,
        read=len(split.dense),
        tasks={task: _task(split.labels[:, at]) for at, task in enumerate(tasks)},
        dense={
            item.name: _dense(split.dense[:, at], train.dense[:, at])
            for at, item in enumerate(schema.dense)
        },
        sparse={item.name: _sparse(item, split, train) for item in schema.sparse},
    )


def _task(labels: NDArray[np.float32]) -> TaskDescription:
    counted = labels[~np.isnan(labels)]
    mean = float(counted.mean(dtype=np.float64)) if len(counted) else float("nan")
    return TaskDescription(mean=mean, counted=len(counted))


def _task_text(task: TaskDescription) -> str:
    return f"{task.mean:.4g} of {task.counted:,}"


def _dense(values: NDArray[np.float32], train: NDArray[np.float32]) -> DenseDescription:
    return DenseDescription(
        mean=float(values.mean(dtype=np.float64)),
        deviation=float(values.std(dtype=np.float64)),
        minimum=float(values.min()),
        maximum=float(values.max()),
        drift=value_drift(train, values),
    )


def _sparse(item: SparseInput, split: _Rows, train: _Rows) -> SparseDescription:
    values, lengths = split.values[item.name], split.lengths[item.name]
    return SparseDescription(
        ids_per_row=float(lengths.mean()),
        longest=int(lengths.max()),
        empty=float((lengths == 0).mean()),
        unknown=float(_is_unknown(item, values).mean()) if len(values) else 0.0,
        drift=id_drift(train.values[item.name], values),
    )


def _is_unknown(item: SparseInput, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    oov: NDArray[np.bool_] = rows == ZERO_ROW
    if isinstance(item.ids, Identity | Vocabulary) and item.ids.unknown == "oov":
        oov |= rows == item.ids.num_rows - 1
    return oov
