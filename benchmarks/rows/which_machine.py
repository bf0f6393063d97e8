"""What a CPU-second gives on each kind of processor, with each kind of dense program: the tables of
docs/performance.md. Kinds that are not this machine's are forced, which takes a newer one."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio, Side
from benchmarks.local import Local
from benchmarks.packages import PackageSpec, Requests
from benchmarks.statistics import NO_BOUND, Bound

BY_NAME_ONLY = True

BATCHES = (("ranking", 200), ("small", 256), ("rm2_10", 64), ("dlrm_v2_100", 256))
"""Workloads, and the examples of the one request in a batch."""

FORCED = {
    "AVX2": {
        "EMBERSHARD_ISA": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
    "AVX-512": {
        "EMBERSHARD_ISA": "avx512",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI",
    },
    "native": {},
}
"""Environment by kind. Also of libraries that Python loads before embershard."""

SLOWEST = {"AVX2, bf16": Bound(0.97)}
"""Of the same kind in fp32."""


def measure(bench: Bench) -> None:
    for workload, examples in BATCHES:
        _compare(bench, workload, examples)


def _compare(bench: Bench, workload: str, examples: int) -> None:
    sides: dict[str, Side] = {}
    for kind, environment in FORCED.items():
        for program in ("fp32", "bf16") if environment else ("fp32", "bf16", "compiled"):
            package = PackageSpec(
                workload=workload, dense_dtype="bf16" if program == "bf16" else "fp32"
            )
            requests = Requests(package=package, examples=examples, count=1, seed=3)
            compiled = program == "compiled"
            sides[f"{kind}, {program}"] = Local(
                package=replace(package, variant="compiled") if compiled else package,
                requests=requests,
                dense_program=program if compiled else "",
                tables="resident",
                cores=(0,),
                environment=environment,
            )
    bench.compare(
        f"*{workload}*, {examples} examples a batch, one thread",
        sides,
        [
            Ratio(
                f"{workload}_{name}".replace(", ", "_").lower(),
                "examples_per_cpu_second",
                name,
                f"{name.split(', ')[0]}, fp32" if not name.endswith("fp32") else "",
                bound=SLOWEST.get(name, NO_BOUND),
            )
            for name in sides
        ],
        blocks=10,
    )
