"""``fit``: costs of rows and bags that explain measured operations best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.planner.machine import RowCost

Floats = NDArray[np.float64]
ROW_NAMES = ("row", "row_byte")
NAMES = ("start", "id", "id_byte", "bag", "bag_byte")


class Measured(NamedTuple):
    """One operation: its size, and its seconds twice over."""

    ids: int
    bags: int
    row_bytes: int
    forward: tuple[float, float] = (0.0, 0.0)
    backward: tuple[float, float] = (0.0, 0.0)
    rows: int = 0
    """Distinct ones among the ids."""


def fit(measured: Sequence[Measured], seconds: Floats) -> tuple[RowCost, float]:
    """Costs of least relative error, none negative, and that error; without distinct rows."""
    found, error = _least(_sizes(measured), seconds)
    return RowCost(**dict(zip(NAMES, map(float, found), strict=True))), error


def fit_places(
    measured: Sequence[Sequence[Measured]], seconds: Sequence[Floats]
) -> tuple[list[RowCost], float]:
    """Costs of operations with rows in several places, of least relative error, and that error:
    distinct rows cost otherwise in each place, all else the same.

    Args:
        measured: of each place.
        seconds: likewise.
    """
    common = np.concatenate([_sizes(each) for each in measured])
    rows = np.zeros((len(common), len(ROW_NAMES) * len(measured)))
    first = 0
    for place, operations in enumerate(measured):
        for each in operations:
            rows[first, 2 * place : 2 * place + 2] = each.rows, each.rows * each.row_bytes
            first += 1
    found, error = _least(np.hstack([common, rows]), np.concatenate(seconds))
    costs = dict(zip(NAMES, map(float, found), strict=False))
    of_rows = found[len(NAMES) :].reshape(-1, 2)
    return [
        RowCost(**costs, **dict(zip(ROW_NAMES, map(float, each), strict=True))) for each in of_rows
    ], error


def _sizes(measured: Sequence[Measured]) -> Floats:
    return np.array(
        [
            (1, each.ids, each.ids * each.row_bytes, each.bags, each.bags * each.row_bytes)
            for each in measured
        ],
        dtype=float,
    )


def _least(sizes: Floats, seconds: Floats) -> tuple[Floats, float]:
    """Factors of least relative error, and that error.

    A factor that comes out negative is left out and the others are fitted again.
    """
    relative = sizes / seconds[:, None]
    kept = list(range(sizes.shape[1]))
    found = np.zeros(sizes.shape[1])
    while kept:
        # Columns of one size: otherwise small ones vanish beside the machine's precision.
        scale = np.maximum(abs(relative[:, kept]).max(0), 1e-300)
        solved, *_ = np.linalg.lstsq(relative[:, kept] / scale, np.ones(len(seconds)), rcond=None)
        if (solved >= 0).all():
            found[kept] = solved / scale
            break
        kept.pop(int(solved.argmin()))
    return found, float(np.mean(abs(relative @ found - 1)))
