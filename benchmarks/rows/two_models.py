"""Two models in one server, each at 35 % of its own capacity: the p99 of each."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load, Together, at_share_of_capacity
from benchmarks.packages import Requests
from benchmarks.rows.mlperf_bf16 import MLPERF_REQUESTS
from benchmarks.servers import RESIDENT, ServeModels

SMALL = Requests(examples=16, count=500)
PAIRS = {"small_small": (SMALL, SMALL), "small_mlperf": (SMALL, MLPERF_REQUESTS)}


def measure(bench: Bench) -> None:
    for row, (first, second) in PAIRS.items():
        server = ServeModels(
            models=(("first", (first.package,)), ("second", (second.package,))), flags=RESIDENT
        )
        loads = tuple(
            (
                name,
                at_share_of_capacity(
                    bench,
                    Load(server=server, requests=replace(requests, model=name), seconds=10.0,
                         warmup_seconds=0.5, all_ok=False),
                    0.35,
                ),
            )
            for name, requests in (("first", first), ("second", second))
        )  # fmt: skip
        rates = " and ".join(f"{load.rate:.0f}" for _, load in loads)
        bench.compare(
            f"*small*, 16 examples, and "
            f"{'the same' if second == first else 'DLRM-v2 at the sizes of MLPerf'}: {rates} "
            "requests/s, 35 % of the capacity of each",
            {"both": Together(loads=loads)},
            [Ratio(f"{row}_{name}", f"{name}_p99_us", "both") for name, _ in loads],
            blocks=10,
        )
