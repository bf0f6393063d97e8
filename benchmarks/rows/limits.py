"""What the memory and the cores of this machine can do at best."""

from __future__ import annotations

from benchmarks.checkout import THIS, Command
from benchmarks.harness import Bench, Ratio
from benchmarks.local import Child

LIMITS = {
    "stream": ("memory read in order", "gb_per_second"),
    "gather 64 8000000": ("int8 rows drawn at random, D64, sums of 20", "million_rows_per_second"),
    "gather 128 8000000": (
        "int8 rows drawn at random, D128, sums of 20",
        "million_rows_per_second",
    ),
    "multiply_add": ("float32 multiply-adds in registers", "gflop_per_second"),
}
"""What one thread does or more, and the figure."""


def measure(bench: Bench) -> None:
    for limit, (what, figure) in LIMITS.items():
        for threads in (1, 2):
            name = f"{'_'.join(limit.split()[:2])}_{threads}t"
            bench.compare(
                f"{what}, threads: {threads}",
                {"C++": _side(limit, threads)},
                [Ratio(name, figure, "C++")],
            )


def _side(limit: str, threads: int) -> Child:
    def command(_: object) -> Command:
        return THIS.program("limits", threads, *limit.split())

    return Child(command=command, cores=tuple(range(threads)))
