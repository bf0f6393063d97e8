"""Models in process, compared with TorchRec's, and on older kinds of processors."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Bench, Ratio, Side, benchmark
from benchmarks.local import Local
from benchmarks.packages import PackageSpec, Requests
from benchmarks.statistics import NO_BOUND, Bound
from benchmarks.torchrec import MODES, TorchRec
from embershard.serving._native import LIBRARY_ISA

FORCED = {
    "AVX2": {"EMBERSHARD_ISA": "avx2", **LIBRARY_ISA["avx2"]},
    "AVX-512": {"EMBERSHARD_ISA": "avx512", **LIBRARY_ISA["avx512"]},
    "native": {},
}
"""Includes variables of libraries that are loaded earlier than embershard."""


def _local(package: PackageSpec, examples: int, threads: int = 1) -> Local:
    return Local(
        package=package,
        requests=Requests(package=package, examples=examples, count=1, seed=3),
        threads=threads,
        tables="resident",
        cores=tuple(range(threads)),
    )


@benchmark(peers=True)
def offline(bench: Bench) -> None:
    batches = (
        ("dlrm_v2_100", 256), ("rm2_10", 64), ("small", 1), ("small", 512), ("ranking", 200)
    )  # fmt: skip
    for workload, examples in batches:
        for threads in (1, 2):
            with TemporaryDirectory() as folder:
                _beside_torchrec(bench, workload, examples, threads, Path(folder))


def _beside_torchrec(
    bench: Bench, workload: str, examples: int, threads: int, folder: Path
) -> None:
    sides: dict[str, Side] = {}
    for dtype in ("fp32", "bf16"):
        package = PackageSpec(workload=workload, dense_dtype=dtype, devices=f"{threads}xcpu")
        sides[f"LocalPredictor, {dtype}"] = replace(
            _local(package, examples, threads), scores=folder / f"{dtype}.npy"
        )
    for name, mode in MODES.items():
        sides[mode.title] = TorchRec(
            workload=workload,
            examples=examples,
            threads=threads,
            mode=name,
            our_scores=folder / f"{mode.dense_dtype}.npy",
        )
    bench.compare(
        f"*{workload}*, {examples} examples a batch, threads: {threads}",
        sides,
        [
            Ratio(
                f"{workload}_{examples}_{threads}t_{name}",
                "examples_per_second",
                f"LocalPredictor, {mode.dense_dtype}",
                mode.title,
            )
            for name, mode in MODES.items()
        ],
        blocks=15,
    )


@benchmark(by_name_only=True)
def which_machine(bench: Bench) -> None:
    """Examples per CPU second in fp32 and bf16, on this processor and as on older ones."""
    batches = (("ranking", 200), ("small", 256), ("rm2_10", 64), ("dlrm_v2_100", 256))
    for workload, examples in batches:
        fp32 = PackageSpec(workload=workload)
        bf16 = _local(replace(fp32, dense_dtype="bf16"), examples)
        programs = {"fp32": _local(fp32, examples), "bf16": bf16}
        sides: dict[str, Side] = {
            f"{kind}, {program}": replace(side, environment=environment)
            for kind, environment in FORCED.items()
            for program, side in programs.items()
        }
        bench.compare(
            f"*{workload}*, {examples} examples a batch, one thread",
            sides,
            [
                Ratio(
                    f"{workload}_{name}".replace(", ", "_").lower(),
                    "examples_per_cpu_second",
                    name,
                    "" if name.endswith("fp32") else f"{name.split(', ')[0]}, fp32",
                    bound=Bound(0.97) if name == "AVX2, bf16" else NO_BOUND,
                )
                for name in sides
            ],
            blocks=10,
        )
