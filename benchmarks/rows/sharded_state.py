"""A rank with half of a table of 1,600,000 x 64 and its row-wise state: its peak memory beside what
it holds, and beside what docs/training.md states ("Memory of a rank"); how long an asynchronous
save holds training beside one copy of the state."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.checkout import Checkout, Command
from benchmarks.harness import Bench, Block, Ratio, Session
from benchmarks.processes import child_process
from benchmarks.statistics import Bound
from benchmarks.torchrun import launch

RANK = "a rank"


@dataclass(frozen=True, slots=True)
class StateOfRank:
    """Two ranks; rank 0 answers for itself."""

    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        worker = (checkout.python, *launch(2), "benchmarks.workers.sharded_state")
        command = Command(worker, checkout.root)
        # glibc then returns what is freed to the system: buffers are measured, not its heap.
        environment = {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
        return session.enter(child_process(command, environment=environment))


def measure(bench: Bench) -> None:
    bench.compare(
        "a table of 1,600,000 x 64 in row ranges over 2 ranks",
        {RANK: StateOfRank()},
        [
            Ratio("peak", "peak_bytes", RANK, RANK, their_figure="state_bytes"),
            Ratio(
                "stated",
                "peak_bytes",
                RANK,
                RANK,
                their_figure="stated_bytes",
                bound=Bound(at_most=1.0),
            ),
            Ratio("hold", "hold_us", RANK, RANK, their_figure="copy_us", bound=Bound(at_most=1.5)),
        ],
    )
