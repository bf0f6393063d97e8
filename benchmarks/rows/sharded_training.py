"""A training step over tables that lie on two ranks, beside TorchRec's: the whole DLRM and the
sparse part alone. gloo, row-wise Adagrad, 26 tables of 100,000 x 64, 512 examples and one thread a
rank."""

from benchmarks.harness import Bench, Ratio
from benchmarks.local import ranks
from benchmarks.sharded_step import PEER_WORKER, WORKER
from benchmarks.statistics import Bound

PEERS = True

TABLES = 26
BOUND = Bound(at_least=1.2)
PARTS = {"step": "training step", "sparse": "the sparse part of a step"}


def measure(bench: Bench) -> None:
    ours, theirs = "embershard", "TorchRec"
    for part, what in PARTS.items():
        for plan in ("table_wise", "row_wise", "column_wise"):
            case = (part, plan, TABLES)
            bench.compare(
                f"{what}, {plan}, 2 ranks",
                {ours: ranks(2, WORKER, *case), theirs: ranks(2, PEER_WORKER, *case, is_peer=True)},
                [
                    Ratio(f"{part}_{plan}", "examples_per_second", ours, theirs, bound=BOUND),
                    Ratio(f"{part}_{plan}_cpu", "examples_per_cpu_second", ours, theirs),
                ],
            )
