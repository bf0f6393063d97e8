"""MLPerf's DLRM-v2 with a hundredth of the rows, in bfloat16, at MLPerf's request sizes: examples
a CPU-second while p99 < 60 ms."""

from benchmarks.harness import Bench
from benchmarks.loads import Load
from benchmarks.objective import Lengths, measure_objective
from benchmarks.packages import PackageSpec, Requests
from benchmarks.servers import RESIDENT, Serve
from embershard.bench import Objective

MLPERF = PackageSpec(workload="dlrm_v2_100", dense_dtype="bf16")
MLPERF_REQUESTS = Requests(package=MLPERF, examples=0, count=100)


def measure(bench: Bench) -> None:
    measure_objective(
        bench,
        f"*dlrm_v2_100*, bf16: Poisson arrivals, MLPerf's sizes (mean 270); `{' '.join(RESIDENT)}`",
        Load(server=Serve(package=MLPERF, flags=RESIDENT), requests=MLPERF_REQUESTS),
        Objective(99, 0.060),
        Lengths(trial=4.0, whole=12.0, run=6.0, offline=2.0, searches=1, pairs=10),
    )
