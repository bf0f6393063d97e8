"""Whole models in process beside TorchRec's quantized ones: int8 tables, the same weights, the same
batch, and scores that are compared first."""

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Bench, Ratio, Side
from benchmarks.local import Local
from benchmarks.packages import PackageSpec, Requests
from benchmarks.torchrec import MODES, TorchRec

PEERS = True

BATCHES = (("dlrm_v2_100", 256), ("rm2_10", 64), ("small", 1), ("small", 512), ("ranking", 200))
"""Workloads, and the examples of the one request in a batch."""


def measure(bench: Bench) -> None:
    for workload, examples in BATCHES:
        for threads in (1, 2):
            with TemporaryDirectory() as folder:
                _compare(bench, workload, examples, threads, Path(folder))


def _compare(bench: Bench, workload: str, examples: int, threads: int, folder: Path) -> None:
    sides: dict[str, Side] = {}
    for dtype in ("fp32", "bf16"):
        package = PackageSpec(workload=workload, dense_dtype=dtype, devices=f"{threads}xcpu")
        requests = Requests(package=package, examples=examples, count=1, seed=3)
        sides[f"LocalPredictor, {dtype}"] = Local(
            package=package,
            requests=requests,
            threads=threads,
            tables="resident",
            cores=tuple(range(threads)),
            scores=folder / f"{dtype}.npy",
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
