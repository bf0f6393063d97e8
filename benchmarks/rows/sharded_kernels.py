"""Tables that train in backward beside those of the dense kernel, which an optimizer of torch
trains: 1,000 rows x 64 each, one id a bag, Adagrad, one rank."""

from benchmarks.harness import Bench, Ratio
from benchmarks.local import ranks
from benchmarks.sharded_step import WORKER

COUNTS = (10, 100, 1000)


def measure(bench: Bench) -> None:
    for count in COUNTS:
        bench.compare(
            f"the sparse part of a step, {count} tables",
            {part: ranks(1, WORKER, part, "table_wise", count) for part in ("fused", "dense")},
            [Ratio(f"tables_{count}", "examples_per_second", "fused", "dense")],
        )
