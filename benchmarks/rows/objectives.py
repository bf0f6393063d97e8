"""The highest rate that meets a latency objective, also compared with the model in process."""

from benchmarks.harness import Bench, benchmark
from benchmarks.loads import Load
from benchmarks.objective import HighestRate, measure_objective
from benchmarks.packages import PackageSpec, Requests
from benchmarks.servers import RESIDENT, Serve
from embershard.bench import Objective

RANKING = PackageSpec(workload="ranking", dense_dtype="bf16")
MLPERF = PackageSpec(workload="dlrm_v2_100", dense_dtype="bf16")
MLPERF_REQUESTS = Requests(package=MLPERF, examples=0, count=100)


def _search(requests: Requests, limit_seconds: float, *, seconds: float) -> HighestRate:
    """Search for a limit of the p99. ``seconds`` is the length of each run."""
    return HighestRate(
        load=Load(
            server=Serve(package=requests.package, flags=RESIDENT),
            requests=requests,
            seconds=seconds,
            warmup_seconds=0.5,
            all_ok=False,
        ),
        objective=Objective(99, limit_seconds),
    )


@benchmark()
def headline_bf16(bench: Bench) -> None:
    requests = Requests(package=RANKING, examples=200, count=200)
    measure_objective(
        bench,
        "*ranking*, bf16: 1 user with 20 features and a history of 300, 200 candidates of 40 "
        f"features; `{' '.join(RESIDENT)}`",
        _search(requests, 0.010, seconds=8.0),
        searches=3,
        seconds=4.0,
        pairs=15,
    )


@benchmark()
def mlperf_bf16(bench: Bench) -> None:
    measure_objective(
        bench,
        f"*dlrm_v2_100*, bf16: Poisson arrivals, MLPerf's sizes (mean 270); `{' '.join(RESIDENT)}`",
        _search(MLPERF_REQUESTS, 0.060, seconds=12.0),
        searches=1,
        seconds=6.0,
        pairs=10,
    )
