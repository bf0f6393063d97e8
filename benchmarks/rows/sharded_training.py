"""A training step over tables that lie on two ranks, beside TorchRec's: the whole DLRM and the
sparse part alone. gloo, row-wise Adagrad, 26 tables of 100,000 x 64, 512 examples and one thread a
rank."""

from __future__ import annotations

from benchmarks.harness import Bench, Ratio
from benchmarks.statistics import Bound
from benchmarks.torchrun import Ranks

PEERS = True

TABLES = 26
BOUND = Bound(at_least=1.2)
PLANS = ("table_wise", "row_wise", "column_wise")


def measure(bench: Bench) -> None:
    for part in ("step", "sparse"):
        for plan in PLANS:
            compare(bench, part, plan)


def compare(bench: Bench, part: str, plan: str) -> None:
    ours = Ranks(part=part, plan=plan, tables=TABLES, ranks=2)
    theirs = Ranks(part=part, plan=plan, tables=TABLES, ranks=2, is_peer=True)
    what = "training step" if part == "step" else "the sparse part of a step"
    bench.compare(
        f"{what}, {plan}, 2 ranks",
        {"embershard": ours, "TorchRec": theirs},
        [
            Ratio(f"{part}_{plan}", "examples_per_second", "embershard", "TorchRec", bound=BOUND),
            Ratio(f"{part}_{plan}_cpu", "examples_per_cpu_second", "embershard", "TorchRec"),
        ],
    )
