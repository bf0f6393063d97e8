"""What the memory and the cores of this machine can do at best."""

from benchmarks.checkout import THIS, Command
from benchmarks.harness import Bench, Ratio
from benchmarks.local import Child

LIMITS = {
    "stream": ("memory read in order", "gb_per_second"),
    "gather 64 8000000 1": (
        "int8 rows drawn at random, D64, sums of 20",
        "million_rows_per_second",
    ),
    "gather 128 8000000 1": (
        "int8 rows drawn at random, D128, sums of 20",
        "million_rows_per_second",
    ),
    "lines 128 8000000 1": (
        "the same, codes on 64-byte lines and scales in an array of their own",
        "million_rows_per_second",
    ),
    "multiply_add": ("float32 multiply-adds in registers", "gflop_per_second"),
}
"""What one thread does or more, and the figure."""

LAYERS = ("benchmarks.workers.layers", "small", 512)


def measure(bench: Bench) -> None:
    for limit, (what, figure) in LIMITS.items():
        for threads in (1, 2):
            name = f"{'_'.join(limit.split()[:2])}_{threads}t"
            bench.compare(
                f"{what}, threads: {threads}",
                {"C++": _side(limit, threads)},
                [Ratio(name, figure, "C++")],
            )
    bench.compare(
        "linear layers of *small* alone, 512 examples, fp32, threads: 1",
        {"torch": Child(command=lambda checkout: checkout.module(*LAYERS), cores=(0,))},
        [Ratio("layers_1t", "examples_per_second", "torch")],
    )


def _side(limit: str, threads: int) -> Child:
    def command(_: object) -> Command:
        return THIS.program("limits", threads, *limit.split())

    return Child(command=command, cores=tuple(range(threads)))
