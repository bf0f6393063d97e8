"""``fit``: costs of rows and bags that explain measured operations best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from embershard.planner.machine import RowCost

__all__ = ["Measured", "fit"]


class Measured(NamedTuple):
    """One operation: its size, and its seconds twice over."""

    ids: int
    bags: int
    row_bytes: int
    forward: tuple[float, float]
    backward: tuple[float, float]


def fit(measured: Sequence[Measured], seconds: NDArray[np.float64]) -> tuple[RowCost, float]:
    """Costs of least relative error, none negative, and that error.

    A cost that comes out negative is left out and the others are fitted again.
    """
    sizes = np.array(
        [
            (1, each.ids, each.ids * each.row_bytes, each.bags, each.bags * each.row_bytes)
            for each in measured
        ],
        dtype=float,
    )
    relative = sizes / seconds[:, None]
    kept = list(range(sizes.shape[1]))
    found = np.zeros(sizes.shape[1])
    while kept:
        solved, *_ = np.linalg.lstsq(relative[:, kept], np.ones(len(seconds)), rcond=None)
        if (solved >= 0).all():
            found[kept] = solved
            break
        kept.pop(int(solved.argmin()))
    error = float(np.mean(abs(relative @ found - 1)))
    names = ("start", "id", "id_byte", "bag", "bag_byte")
    return RowCost(**dict(zip(names, map(float, found), strict=True))), error
