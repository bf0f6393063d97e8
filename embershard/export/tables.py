"""Quantizes tables in slices, writes them to a package, and measures the error."""

import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from embershard.errors import ExportError, InputError
from embershard.kernels import quantize_rows
from embershard.package.manifest import TableSpec
from embershard.package.row_format import RowFormat, WeightType
from embershard.package.writer import PackageWriter

Weights = WeightType | Mapping[str, WeightType]
"""One type for all tables, or types by pattern of table names (``*``, ``?``, ``[...]``)."""


def parse_weights(text: str) -> Weights:
    """Parse the weight type of tables: ``int8``, or ``users=int8,item*=int4,*=fp16``.

    Raises:
        ExportError: a type is unknown, or a pattern has no type or occurs twice.
    """
    if "=" not in text:
        return _parse_kind(text.strip())
    patterns: dict[str, WeightType] = {}
    for part in text.split(","):
        pattern, separator, kind = part.partition("=")
        if not separator or not pattern.strip():
            raise ExportError(f"weights: expected <table pattern>=<type>, got {part!r}")
        if pattern.strip() in patterns:
            raise ExportError(f"weights: expected each pattern once, got pattern {pattern!r} twice")
        patterns[pattern.strip()] = _parse_kind(kind.strip())
    return patterns


def weights_of(tables: Iterable[str], weights: Weights) -> dict[str, WeightType]:
    """The weight type of each table, by the first pattern that matches its name."""
    names = list(tables)
    if isinstance(weights, str):
        return dict.fromkeys(names, _parse_kind(weights))
    if not isinstance(weights, Mapping):
        raise ExportError(
            "weights: expected a type such as 'int8', or a mapping from patterns of table names, "
            f"got {weights!r:.80}"
        )
    for pattern in weights:
        if not fnmatch.filter(names, pattern):
            raise ExportError(
                f"weights: expected patterns that match one of the tables {names}, got {pattern!r}"
            )
    chosen: dict[str, str] = {}
    for name in names:
        first = next((p for p in weights if fnmatch.fnmatchcase(name, p)), None)
        if first is None:
            raise ExportError(
                f"weights: expected a pattern that matches table {name!r}, got only "
                f"{list(weights)}; '*' matches all tables"
            )
        chosen[name] = first
    for pattern in weights:
        if pattern not in chosen.values():
            table = fnmatch.filter(names, pattern)[0]
            raise ExportError(
                f"weights: pattern {pattern!r}: expected a table that no earlier pattern matches, "
                f"got only tables such as {table!r}, which {chosen[table]!r} matches; put the "
                "narrower pattern first"
            )
    return {name: _parse_kind(weights[pattern]) for name, pattern in chosen.items()}


def _parse_kind(kind: str) -> WeightType:
    for known in get_args(WeightType):
        if kind == known:
            return known  # type: ignore[no-any-return]
    raise ExportError(f"weights: expected one of {', '.join(get_args(WeightType))}, got {kind!r}")


DIVERGED = ": training diverged; export an earlier checkpoint, and train with a lower learning rate"
SLICE_BYTES = 4 << 20
"""Float32 bytes that are quantized at once. Writing a table needs a few times this memory."""


@dataclass(slots=True)
class _Error:
    squares: float = 0.0
    values: int = 0
    largest: float = 0.0

    def add(self, difference: NDArray[np.float32]) -> None:
        self.squares += float(np.square(difference, dtype=np.float64).sum())
        self.values += difference.size
        self.largest = max(self.largest, float(np.abs(difference).max(initial=0.0)))


@contextmanager
def _table_named(table: str) -> Iterator[None]:
    try:
        yield
    except InputError as problem:
        diverged = DIVERGED if str(problem).endswith("got nan") else ""
        raise ExportError(f"table {table!r}: {problem}{diverged}") from problem


def write_table(
    writer: PackageWriter,
    name: str,
    weight: Tensor,
    kind: WeightType,
    *,
    written: Callable[[int], None],
) -> TableSpec:
    """Quantize a table, float32 or float16 ``(rows, dim)``, in slices, and write it. Returns its
    spec with the measured errors. ``written`` is called with the number of rows of each slice."""
    error = _Error()
    with _table_named(name):
        row_format = RowFormat(kind, weight.shape[1])
        slices = _stored_slices(weight, row_format, error, written)
        spec = writer.write_table(name, row_format, slices, rows=len(weight))
    return spec.with_error(mse=error.squares / error.values, max_error=error.largest)


def stored_rows(name: str, weight: Tensor, rows: Tensor, kind: WeightType) -> NDArray[np.float32]:
    """The float32 values ``(n, dim)`` of some rows, int64 ``(n,)``, after quantization."""
    chosen = weight.detach()[rows.to(weight.device)].cpu().float()
    row_format = RowFormat(kind, weight.shape[1])
    with _table_named(name):
        return row_format.dequantize_rows(quantize_rows(chosen, kind, numbers=rows).numpy())


def _stored_slices(
    weight: Tensor, row_format: RowFormat, error: _Error, written: Callable[[int], None]
) -> Iterator[NDArray[np.uint8]]:
    rows = max(1, math.ceil(SLICE_BYTES / (4 * row_format.dim)))
    for start in range(0, len(weight), rows):
        part = weight.detach()[start : start + rows].cpu().float()
        numbers = range(start, start + len(part))
        stored = quantize_rows(part, row_format.weights, numbers=numbers).numpy()
        error.add(row_format.dequantize_rows(stored) - part.numpy())
        yield stored
        written(len(part))
