"""*ranking* for a minute at three times its capacity: memory, refusals, goodput and recovery."""

from __future__ import annotations

from benchmarks.harness import Bench, Ratio
from benchmarks.loads import Load
from benchmarks.overload import Overload
from benchmarks.packages import PackageSpec, Requests
from benchmarks.servers import Serve
from benchmarks.statistics import Bound

BY_NAME_ONLY = True

RANKING = PackageSpec(workload="ranking")
SIDE, CAPACITY = "overload", "capacity_per_second"


def measure(bench: Bench) -> None:
    load = Load(
        server=Serve(package=RANKING),
        requests=Requests(package=RANKING, examples=200, count=200),
        in_flight=32,
        seconds=60.0,
        all_ok=False,
    )
    bench.compare(
        "*ranking*, 200 candidates, open loop at 3 times the closed-loop rate for 60 s, deadline "
        "100 ms",
        {SIDE: Overload(load=load)},
        [
            Ratio("memory", "memory_growth_mib", SIDE),
            Ratio("accepted_late", "late_percent", SIDE),
            Ratio("accepted_p99", "accepted_p99_us", SIDE),
            Ratio("refusal_p99", "refusal_p99_us", SIDE),
            Ratio("goodput", "ok_per_second", SIDE, SIDE, CAPACITY, bound=Bound(0.8)),
            Ratio("recovery", "recovered_per_second", SIDE, SIDE, CAPACITY, bound=Bound(0.9)),
        ],
        blocks=1,
        warm_up=False,
    )
