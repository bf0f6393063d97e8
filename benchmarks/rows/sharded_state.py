"""A rank with half of a table of 1,600,000 x 64 and its row-wise state: its peak memory beside what
it holds, and beside what docs/sharding.md states ("Memory of a rank"); how long an asynchronous
save holds training beside one copy of the state."""

from dataclasses import replace

from benchmarks.harness import Bench, Ratio
from benchmarks.local import ranks
from benchmarks.statistics import Bound

RANK = "a rank"


def measure(bench: Bench) -> None:
    rank = ranks(2, "benchmarks.workers.sharded_state")
    # glibc then returns what is freed to the system: buffers are measured, not its heap.
    environment = {**rank.environment, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    bench.compare(
        "a table of 1,600,000 x 64 in row ranges over 2 ranks",
        {RANK: replace(rank, environment=environment)},
        [
            Ratio("peak", "peak_bytes", RANK, RANK, "state_bytes"),
            Ratio("stated", "peak_bytes", RANK, RANK, "stated_bytes", bound=Bound(at_most=1.0)),
            Ratio("hold", "hold_us", RANK, RANK, "copy_us", bound=Bound(at_most=1.5)),
        ],
    )
