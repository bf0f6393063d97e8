"""*ranking* with the dense program in bfloat16: examples a CPU-second while p99 < 10 ms."""

from benchmarks.harness import Bench
from benchmarks.loads import Load
from benchmarks.objective import Lengths, measure_objective
from benchmarks.packages import PackageSpec, Requests
from benchmarks.servers import RESIDENT, Serve
from embershard.bench import Objective

PACKAGE = PackageSpec(workload="ranking", dense_dtype="bf16")


def measure(bench: Bench) -> None:
    measure_objective(
        bench,
        "*ranking*, bf16: 1 user with 20 features and a history of 300, 200 candidates of 40 "
        f"features; `{' '.join(RESIDENT)}`",
        Load(
            server=Serve(package=PACKAGE, flags=RESIDENT),
            requests=Requests(package=PACKAGE, examples=200, count=200),
        ),
        Objective(99, 0.010),
        Lengths(trial=2.0, whole=8.0, run=4.0, offline=1.0, searches=3, pairs=15),
    )
