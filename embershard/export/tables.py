"""Tables to the package's rows: in which weight type, a slice at a time, with the error that it
costs."""

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
"""One type for all tables, or a pattern of table names (``*``, ``?``, ``[...]``) -> type."""


def parse_weights(text: str) -> Weights:
    """``int8``, or ``users=int8,item*=int4,*=fp16``.

    Raises:
        ExportError: an unknown type, a pattern without one, or one that comes twice.
    """
    if "=" not in text:
        return _known(text.strip())
    patterns: dict[str, WeightType] = {}
    for part in text.split(","):
        pattern, separator, kind = part.partition("=")
        if not separator or not pattern.strip():
            raise ExportError(f"weights: expected <table pattern>=<type>, got {part!r}")
        if pattern.strip() in patterns:
            raise ExportError(f"weights: expected each pattern once, got pattern {pattern!r} twice")
        patterns[pattern.strip()] = _known(kind.strip())
    return patterns


def weights_of(tables: Iterable[str], weights: Weights) -> dict[str, WeightType]:
    """The weight type of each table; the first pattern that fits counts."""
    names = list(tables)
    if isinstance(weights, str):
        return dict.fromkeys(names, _known(weights))
    if not isinstance(weights, Mapping):
        raise ExportError(
            "weights: expected a type such as 'int8', or a mapping from patterns of table names, "
            f"got {weights!r:.80}"
        )
    for each in weights:
        if not fnmatch.filter(names, each):
            raise ExportError(
                f"weights: pattern {each!r}: expected to fit a table, the tables are {names}"
            )
    counting: dict[str, str] = {}
    for name in names:
        pattern = next((p for p in weights if fnmatch.fnmatchcase(name, p)), None)
        if pattern is None:
            raise ExportError(
                f"weights: table {name!r}: expected a pattern that fits it, got only "
                f"{list(weights)}; '*' fits all"
            )
        counting[name] = pattern
    for pattern in weights:
        if pattern not in counting.values():
            fitting = fnmatch.filter(names, pattern)
            raise ExportError(
                f"weights: pattern {pattern!r}: expected to fit a table that no pattern before it "
                f"fits, but {fitting[0]!r} has {counting[fitting[0]]!r}; the first that fits counts"
            )
    return {name: _known(weights[pattern]) for name, pattern in counting.items()}


def _known(kind: str) -> WeightType:
    for known in get_args(WeightType):
        if kind == known:
            return known  # type: ignore[no-any-return]
    raise ExportError(f"weights: expected one of {', '.join(get_args(WeightType))}, got {kind!r}")


DIVERGED = (
    ": training diverged; export a checkpoint from before, and train with a lower learning rate"
)
"""The error message for a parameter that is NaN."""

SLICE_BYTES = 4 << 20
"""Float32 bytes quantized at once. A table costs a few times this in memory beyond itself."""


@dataclass(slots=True)
class _Error:
    """Difference between weights and what their stored rows read back as."""

    squares: float = 0.0
    values: int = 0
    largest: float = 0.0

    def add(self, difference: NDArray[np.float32]) -> None:
        self.squares += float(np.square(difference, dtype=np.float64).sum())
        self.values += difference.size
        self.largest = max(self.largest, float(np.abs(difference).max(initial=0.0)))


@contextmanager
def _named(table: str) -> Iterator[None]:
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
    """Quantize and write one table, float32 or float16 ``(rows, dim)`` on any device, slice by
    slice; ``written`` gets the rows of each. Returns what the manifest says of it, the mean squared
    and the largest error included."""
    error = _Error()
    with _named(name):
        row_format = RowFormat(kind, weight.shape[1])
        slices = _stored_slices(weight, row_format, error, written)
        spec = writer.write_table(name, row_format, slices, rows=len(weight))
    return spec.with_error(mse=error.squares / error.values, max_error=error.largest)


def stored_rows(name: str, weight: Tensor, rows: Tensor, kind: WeightType) -> NDArray[np.float32]:
    """What the stored form of some rows of a table, int64 ``(n,)``, reads back as: float32
    ``(n, dim)``."""
    chosen = weight.detach()[rows.to(weight.device)].cpu().float()
    row_format = RowFormat(kind, weight.shape[1])
    with _named(name):
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
