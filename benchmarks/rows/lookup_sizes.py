"""Lookups of the batches that servers see, from one request to many, one id a list and twenty:
ours from C++ beside FBGEMM's module from Python, on the tables of *small*."""

from __future__ import annotations

from benchmarks.harness import Row
from benchmarks.packages import package_of
from benchmarks.rows.lookup import Lookups, against_fbgemm
from embershard.data import workload

__all__ = ["measure"]

BAGS = (1, 64, 512)
LENGTHS = (1, 20)


def measure() -> list[Row]:
    """One thread, FBGEMM tuned."""
    package = package_of(workload("small"))
    return [
        row
        for bags in BAGS
        for length in LENGTHS
        for row in against_fbgemm(
            f"lookup_sizes/{bags}x{length}",
            Lookups(package=package, threads=1, bags=bags, length=length),
            ["tuned"],
        )
    ]
