"""Tables that train in backward beside those of the dense kernel, which an optimizer of torch
trains: 1,000 rows x 64 each, one id a bag, Adagrad, one rank."""

from __future__ import annotations

from benchmarks.harness import Bench, Ratio
from benchmarks.torchrun import Ranks

COUNTS = (10, 100, 1000)


def measure(bench: Bench) -> None:
    for count in COUNTS:
        fused, dense = (
            Ranks(part=part, plan="table_wise", tables=count, ranks=1)
            for part in ("fused", "dense")
        )
        bench.compare(
            f"the sparse part of a step, {count} tables",
            {"fused": fused, "dense": dense},
            [Ratio(f"tables_{count}", "examples_per_second", "fused", "dense")],
        )
