"""Lookups of the batches that servers see, one request or many, one id a bag or twenty, beside
FBGEMM's tuned operator, called from C++, on the tables of *small*."""

from benchmarks.harness import Bench
from benchmarks.packages import SMALL
from benchmarks.rows.lookup import compare_lookups


def measure(bench: Bench) -> None:
    for bags in (1, 64, 512):
        for length in (1, 20):
            compare_lookups(bench, f"{bags}x{length}", SMALL, bags=bags, length=length)
