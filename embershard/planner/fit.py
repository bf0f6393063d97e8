"""``fit``: costs of rows and bags that explain measured operations best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.planner.machine import Kernel, MissCost, RowCost, line_bytes

Floats = NDArray[np.float64]
NAMES = ("start", "id", "id_byte", "bag", "bag_byte", "row", "row_byte")


class Measured(NamedTuple):
    """One operation: its size, and its seconds twice over."""

    ids: int
    bags: int
    row_bytes: int
    forward: tuple[float, float] = (0.0, 0.0)
    backward: tuple[float, float] = (0.0, 0.0)
    rows: int = 0
    """Distinct ones among the ids, of a pass that reaches each once. 0: it reaches the row of
    every id."""

    missed: tuple[float, ...] = ()
    """Share of the ids whose row is not in each cache."""


def fit_kernels(
    measured: Mapping[str, Sequence[Measured]],
) -> tuple[dict[str, Kernel], list[float]]:
    """Costs by optimizer, and their errors. All optimizers have one lookup."""
    found = [each for of_optimizer in measured.values() for each in of_optimizer]
    lookups = [each._replace(rows=0) for each in found]
    forward, error = fit(lookups, np.array([np.mean(each.forward) for each in found]))
    kernels, errors = dict[str, Kernel](), [error]
    for optimizer, of_optimizer in measured.items():
        seconds = np.array([np.mean(each.backward) for each in of_optimizer])
        backward, error = fit(of_optimizer, seconds)
        kernels[optimizer] = Kernel(forward=forward, backward=backward)
        errors.append(error)
    return kernels, errors


def repeat_error(measured: Mapping[str, Sequence[Measured]]) -> float:
    """Median relative difference between the two measurements of each operation."""
    found = [each for of_optimizer in measured.values() for each in of_optimizer]
    pairs = [pair for each in found for pair in (each.forward, each.backward)]
    return float(np.median([abs(one / two - 1) for one, two in pairs]))


def fit_exchange(measured: Sequence[Measured], seconds: Floats) -> tuple[RowCost, float]:
    """Likewise, of what moves ids and vectors, but no rows."""
    return fit(measured, seconds, without=("id_byte",))


def fit(
    measured: Sequence[Measured], seconds: Floats, *, without: Sequence[str] = ()
) -> tuple[RowCost, float]:
    """Costs of least relative error, none negative, and that error; costs ``without`` are 0."""
    sizes = np.array([_sizes(each) for each in measured])
    sizes[:, [NAMES.index(name) for name in without]] = 0
    found, error = _least(sizes / seconds[:, None])
    misses = [MissCost(row=row, row_byte=byte) for row, byte in found[len(NAMES) :].reshape(-1, 2)]
    costs = dict(zip(NAMES, map(float, found), strict=False))
    return RowCost(**costs, misses=tuple(misses)), error


def _sizes(each: Measured) -> list[float]:
    lines = float(line_bytes(each.row_bytes))
    reached = each.rows or each.ids
    counts = each.rows, *(min(each.ids * share, reached) for share in each.missed)
    by_lines = ((count, count * lines) for count in counts)
    bags = each.bags, each.bags * each.row_bytes
    return [1, each.ids, each.ids * lines, *bags, *(size for both in by_lines for size in both)]


def _least(relative: Floats) -> tuple[Floats, float]:
    """Factors whose products with each row come nearest to 1, and the mean error.

    A factor that comes out negative is left out and the others are fitted again.
    """
    kept = np.flatnonzero(relative.any(0)).tolist()
    found = np.zeros(relative.shape[1])
    while kept:
        # Columns of one size: otherwise small ones vanish beside the machine's precision.
        scale = relative[:, kept].max(0)
        solved, *_ = np.linalg.lstsq(relative[:, kept] / scale, np.ones(len(relative)), rcond=None)
        if (solved >= 0).all():
            found[kept] = solved / scale
            break
        kept.pop(int(solved.argmin()))
    return found, float(np.mean(abs(relative @ found - 1)))
