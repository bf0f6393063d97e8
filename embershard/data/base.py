"""Data sets in memory.

Ids are *raw*: what a client would send, a string as its XXH3-64. `embershard.data.batches` turns
them into table rows and tensors.

    dense    [N, F]     one column per dense input, in the schema's order
    sparse   per input  offsets  0     2  2        5      lists for N = 3 examples
                        values   a  b     c  d  e
    labels   [N]        or [N, T]: one column per task
    request  [N]        equal numbers: one request, so equal request-scoped inputs
    weights  [N]        optional: factor of each example's losses
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from embershard.data.id_columns import flat_ids
from embershard.data.splits import Split
from embershard.errors import InputError
from embershard.package.samples import offsets_of
from embershard.package.schema import Schema

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with the step of a preparation, its units that are done, and all of its units."""


class JaggedColumn(NamedTuple):
    """One sparse input of N examples: values int64 ``[total]``, offsets int64 ``[N + 1]``."""

    values: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Values per example, int64 ``[N]``."""
        return np.diff(self.offsets)

    @classmethod
    def of_ranges(
        cls, values: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> JaggedColumn:
        """The lists ``values[starts[i] : starts[i] + lengths[i]]``; both int64 ``[N]``."""
        offsets = offsets_of(lengths)
        shift = np.repeat(starts - offsets[:-1], lengths)
        return cls(values[np.arange(offsets[-1]) + shift], offsets)

    @classmethod
    def of_lists(cls, lists: ArrayLike) -> JaggedColumn:
        """The column of a caller's ids, which are integers or strings.

        Args:
            lists: one id for each of N examples, or a list of ids for each. A list, or a column
                of numpy, Arrow, pandas or torch (on CPU).

        Raises:
            InputError: an id that is neither, both kinds in one column, or ids among lists.
        """
        values, lengths = flat_ids(lists)
        return cls(values, offsets_of(lengths))

    def take(self, index: NDArray[np.int64]) -> JaggedColumn:
        """The lists of the examples ``index`` [M], in that order."""
        index = np.where(index < 0, index + len(self.offsets) - 1, index)
        starts = self.offsets[index]  # Not `lengths`, which reads the offsets of all examples.
        return self.of_ranges(self.values, starts, self.offsets[index + 1] - starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """N labelled examples in memory.

    ::

        from embershard.data import Examples, JaggedColumn

        examples = Examples(
            schema=schema,
            dense=np.array([[0.5, 1.0], [0.5, 2.0], [0.2, 1.5]], dtype=np.float32),
            sparse={
                "user": JaggedColumn.of_lists([["u-81"], ["u-81"], ["u-7"]]),
                "item": JaggedColumn.of_lists([[1101], [1205, 1007], [99]]),
            },
            labels=np.array([1, 0, 1], dtype=np.float32),
            request=np.array([0, 0, 1]),
        )

    Raises:
        InputError: shapes, dtypes or names that contradict the schema or one another, a dense
            value that is not finite, or a label that is out of range.
    """

    schema: Schema
    dense: NDArray[np.float32]
    """``[N, F]``, finite, columns in ``schema.dense`` order."""

    sparse: Mapping[str, JaggedColumn]
    """Raw ids of every input in ``schema.sparse``."""

    labels: NDArray[np.float32]
    """``[N]``: 0 or 1. ``[N, T]``: a column of numbers for each task, in which NaN means that a
    label does not count."""

    request: NDArray[np.int64]
    """``[N]``. Examples with equal numbers belong to one request."""

    weights: NDArray[np.float32] | None = None
    """``[N]``, at least 0: factor of each example's losses. None: 1 each."""

    def __post_init__(self) -> None:
        count = _count(self.labels)
        _check_labels(self.labels, count)
        _check_array("dense", self.dense, np.float32, (count, len(self.schema.dense)))
        _check_finite(self.schema, self.dense)
        _check_array("request", self.request, np.int64, (count,))
        if self.weights is not None:
            _check_weights(self.weights, count)
        expected = self.schema.sparse_names()
        if sorted(self.sparse) != sorted(expected):
            raise InputError(f"sparse: expected inputs {expected}, got {list(self.sparse)}")
        for item in self.schema.sparse:
            if item.weighted:
                raise InputError(f"sparse {item.name!r}: expected no weights, got weighted")
        for name, column in self.sparse.items():
            _check_column(name, column, count)

    def __len__(self) -> int:
        return len(self.labels)

    def label_means(self) -> list[float]:
        """Mean label of each task, over labels that count; NaN if there are none."""
        columns = self.labels.reshape(len(self), -1 if len(self) else 1).T
        counted = [column[~np.isnan(column)].astype(np.float64) for column in columns]
        return [float(column.mean()) if len(column) else math.nan for column in counted]

    def take(self, index: NDArray[np.int64]) -> Examples:
        """The examples ``index`` [M] (repeats allowed), in that order."""
        return Examples(
            schema=self.schema,
            dense=self.dense[index],
            sparse={name: column.take(index) for name, column in self.sparse.items()},
            labels=self.labels[index],
            request=self.request[index],
            weights=None if self.weights is None else self.weights[index],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHint:
    """A table that suits a data set: which sparse inputs share it, and how they are pooled. The
    inputs of one table share one id map, and so its rows."""

    name: str
    features: tuple[str, ...]
    pooling: Literal["sum", "mean"]


AnySplit = TypeVar("AnySplit", bound=Examples | Split, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset(Generic[AnySplit]):
    """Three splits of one log, with the schema that describes them. Splits are `Examples`, or
    objects with the methods of `Split`."""

    name: str
    schema: Schema
    train: AnySplit
    valid: AnySplit
    test: AnySplit
    tables: tuple[TableHint, ...]
    """Every sparse input of the schema in exactly one table."""

    def __post_init__(self) -> None:
        hinted = sorted(feature for table in self.tables for feature in table.features)
        expected = sorted(self.schema.sparse_names())
        if hinted != expected:
            raise InputError(f"tables: expected each of {expected} once, got {hinted}")

    def digest(self) -> str:
        """SHA-256 of all examples, in hex. Data sets with other splits override this."""
        digest = hashlib.sha256()
        for split in (self.train, self.valid, self.test):
            if not isinstance(split, Examples):
                raise TypeError(f"digest: expected Examples, got {type(split).__name__}")
            arrays: list[NDArray[Any]] = [split.labels, split.request, split.dense]
            if split.weights is not None:
                arrays.append(split.weights)
            for name in sorted(split.sparse):
                digest.update(name.encode())
                arrays += split.sparse[name].values, split.sparse[name].offsets
            for array in arrays:
                digest.update(str(array.shape).encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def _check_array(name: str, array: object, dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    kind = np.dtype(dtype).name
    expected = f"{name}: expected {kind} {list(shape)}"
    if not isinstance(array, np.ndarray):
        got = type(array).__name__
        raise InputError(f"{expected}, got {got}; convert it with np.asarray(..., np.{kind})")
    if array.dtype != dtype or array.shape != shape:
        remedy = f"; convert it with .astype(np.{kind})" if array.shape == shape else ""
        raise InputError(f"{expected}, got {array.dtype.name} {list(array.shape)}{remedy}")


def _count(labels: ArrayLike) -> int:
    shape = np.shape(labels)
    if not shape:
        raise InputError(f"labels: expected float32 [N] or [N, T], got {labels!r:.40}")
    return int(shape[0])


def _check_labels(labels: NDArray[np.float32], count: int) -> None:
    """Labels ``[N]`` are 0 or 1. Labels ``[N, T]`` depend on the losses of the tasks."""
    shape = np.shape(labels)
    has_columns = len(shape) == 2 and shape[1] > 0
    _check_array("labels", labels, np.float32, shape if has_columns else (count,))
    wrong = np.argwhere(np.isinf(labels) if has_columns else (labels != 0) & (labels != 1))
    if not len(wrong):
        return
    example, *column = wrong[0]
    got = f"got {labels[tuple(wrong[0])]} in example {example}"
    if column:
        raise InputError(f"labels: expected finite numbers or NaN, {got}, column {column[0]}")
    raise InputError(
        f"labels: expected 0 or 1, {got}; set a threshold, such as (values > 3).astype(np.float32)"
    )


def _check_weights(weights: NDArray[np.float32], count: int) -> None:
    _check_array("weights", weights, np.float32, (count,))
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        example = int(np.argmax(wrong))
        raise InputError(
            f"weights: expected finite numbers of at least 0, "
            f"got {weights[example]} in example {example}"
        )


def _check_finite(schema: Schema, dense: NDArray[np.float32]) -> None:
    finite = np.isfinite(dense)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise InputError(
            f"dense {schema.dense[column].name!r}: expected finite numbers, "
            f"got {dense[row, column]} in example {row}; fill it, or leave the example out"
        )


def _check_column(name: str, column: JaggedColumn, count: int) -> None:
    if not isinstance(column, JaggedColumn):
        raise InputError(
            f"sparse {name!r}: expected a JaggedColumn, got {type(column).__name__}; "
            "convert it with JaggedColumn.of_lists(...)"
        )
    values, offsets = column
    if values.dtype != np.int64 or values.ndim != 1:
        raise InputError(
            f"sparse {name!r}: expected int64 values [total], "
            f"got {values.dtype.name} {list(values.shape)}"
        )
    _check_array(f"sparse {name!r} offsets", offsets, np.int64, (count + 1,))
    if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
        raise InputError(
            f"sparse {name!r}: expected offsets rising from 0 to {len(values)}, "
            f"got {offsets[0]} to {offsets[-1]}"
        )
