"""The latency of requests at half load while 200 versions are swapped in, one a second."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Swaps
from benchmarks.packages import SMALL
from benchmarks.rows.swaps import half_load
from benchmarks.servers import ServeModels, one_model

BY_NAME_ONLY = True


def measure(bench: Bench) -> None:
    quiet = half_load(bench)
    swapped = ServeModels(models=one_model(SMALL, SMALL), name="swapped")
    bench.compare(
        f"*small*, 16 examples, {quiet.rate:.0f} requests/s, half of the capacity",
        {
            "a swap every 1 s": replace(quiet, server=swapped, swaps=Swaps(1.0)),
            "no change": quiet,
        },
        [Ratio("p99", "p99_us", "a swap every 1 s", "no change")],
        blocks=40,
    )
