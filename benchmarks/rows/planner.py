"""The planner, for 856 tables drawn from a production batch's statistics, with built-in costs."""

from benchmarks.checkout import PEER_PYTHON
from benchmarks.harness import Bench, Ratio, benchmark
from benchmarks.local import Child
from benchmarks.statistics import Bound

WORKER = "benchmarks.workers.planner"
OURS, THEIRS = "embershard", "TorchRec"


def _side(*arguments: object, is_peer: bool = False) -> Child:
    return Child(command=lambda checkout: checkout.module(WORKER, *arguments), is_peer=is_peer)


@benchmark()
def planner(bench: Bench) -> None:
    """A step with our plan compared with its lower bound and, with ``.venv-peers``, TorchRec's."""
    for ranks in (2, 8, 16, 64):
        bench.compare(
            f"856 tables, {ranks} ranks",
            {OURS: _side(ranks)},
            [
                Ratio(f"step_{ranks}", "step_us", OURS, OURS, "bound_us", Bound(at_most=1.02)),
                Ratio(f"cpu_{ranks}", "cpu_seconds", OURS),
            ],
            blocks=10,
        )
    if bench.other is not None or not PEER_PYTHON.exists():
        return
    # TorchRec's planner finds no plan for 64 ranks, because it does not cut the largest table.
    for ranks in (2, 8, 16):
        bench.compare(
            f"856 tables, {ranks} ranks",
            {OURS: _side(ranks), THEIRS: _side(ranks, PEER_PYTHON, is_peer=True)},
            [
                Ratio(f"torchrec_{ranks}", "busiest_us", OURS, THEIRS),
                Ratio(f"torchrec_cpu_{ranks}", "cpu_seconds", OURS, THEIRS),
            ],
            blocks=1,
            warm_up=False,
        )
