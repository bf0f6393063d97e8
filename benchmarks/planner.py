"""``python -m benchmarks.planner``: plans of the 856 tables beside greedy plans and TorchRec's.

Every plan is priced by the costs of this machine's calibration (``--machine``) or of the one that
ships. Times are of one core, imports apart. TorchRec's planner runs in ``--peers``, an environment
that ``scripts/bench_peers.sh`` makes; without it its rows are left out.
"""

import heapq
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from benchmarks.planner_tables import (
    DrawnTable,
    Rectangles,
    SkewedTable,
    collection_of,
    parser_of,
    reuse_tables,
    sharding_plan,
    skewed_tables,
)
from embershard.formatting import row_text, table_lines
from embershard.planner import EmbeddingShardingPlanner, Machine, ParameterConstraints, Topology
from embershard.sharding import EmbeddingBagCollectionSharder, ShardingPlan

BATCH_SIZE = 512
PATH = "sparse"
OPTIMIZER = "rowwise_adagrad"
MEMORY_SLACK = 1.5
"""Memory of all ranks, relative to the tables."""

PEER = Path(__file__).parent / "peers" / "torchrec_planner.py"
PEER_SECONDS = 300
"""After which TorchRec's planner gives the best of its proposals. It has about three to a table,
and places and rates every table of each."""


class Row(NamedTuple):
    """A plan, priced."""

    tables: int
    ranks: int
    planner: str
    busiest_seconds: float
    bound_seconds: float
    memory_share: float
    """Of the rank that is fullest, relative to its cap."""

    cpu_seconds: float


class Case:
    """Tables to plan for a number of ranks, and our planner of them."""

    def __init__(self, tables: Sequence[DrawnTable], ranks: int, machine: Machine) -> None:
        size = sum(4 * each.rows * each.dim for each in tables)
        self.tables, self.ranks = tables, ranks
        self.cap = int(size * MEMORY_SLACK / ranks) + (1 << 30)
        self.model = nn.ModuleDict({PATH: collection_of(tables)})
        self.sharders = [EmbeddingBagCollectionSharder(fused_params={"optimizer": OPTIMIZER})]
        self.planner = EmbeddingShardingPlanner(
            Topology(ranks, ddr_cap=self.cap, machine=machine),
            BATCH_SIZE,
            constraints={
                each.name: ParameterConstraints(
                    pooling_factors=[each.pooling], cached_share=each.cached_share
                )
                for each in tables
            },
            storage_reservation=0.0,
        )

    def row(self, planner: str, plan: ShardingPlan, bound: float, cpu_seconds: float) -> Row:
        """A plan by our costs."""
        loads = self.planner.price(plan, self.model, self.sharders)
        return Row(
            len(self.tables),
            self.ranks,
            planner,
            max(each.seconds for each in loads),
            bound,
            max(each.memory_bytes for each in loads) / self.cap,
            cpu_seconds,
        )


GREEDY: Mapping[str, Callable[[DrawnTable | SkewedTable], float]] = {
    "greedy by size": lambda table: table.rows * table.dim,
    "greedy by lookups": lambda table: table.pooling * table.dim,
    "greedy by size x lookups": lambda table: table.rows * table.dim * table.pooling,
}


def greedy(tables: Sequence[DrawnTable | SkewedTable], ranks: int, name: str) -> Rectangles:
    """Whole tables, the heaviest first, to the rank with the least."""
    loads = [(0.0, rank) for rank in range(ranks)]
    found = dict[str, list[list[int]]]()
    for table in sorted(tables, key=GREEDY[name], reverse=True):
        load, rank = heapq.heappop(loads)
        found[table.name] = [[0, table.rows, 0, table.dim, rank]]
        heapq.heappush(loads, (load + GREEDY[name](table), rank))
    return found


def torchrec(
    tables: Sequence[DrawnTable], ranks: int, cap: int, peers: Path, *, is_inference: bool = False
) -> tuple[Rectangles, float, int]:
    """TorchRec's planner's, its CPU seconds and the number of its proposals."""
    request = {
        "tables": [each._asdict() for each in tables],
        "ranks": ranks,
        "cap": cap,
        "batch_size": BATCH_SIZE,
        "seconds_max": PEER_SECONDS,
        "is_inference": is_inference,
    }
    done = subprocess.run(
        [peers / "bin" / "python", "-W", "ignore", PEER],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=3 * PEER_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["plan"], answer["cpu_seconds"], answer["proposals"]


def rows(case: Case, peers: Path | None) -> Iterator[Row]:
    """All planners on one set of tables."""
    start = time.process_time()
    plan = case.planner.plan(case.model, case.sharders)
    seconds = time.process_time() - start
    bound = case.planner.report.bound_seconds
    yield case.row("embershard", plan, bound, seconds)
    for name in GREEDY:
        start = time.process_time()
        rectangles = greedy(case.tables, case.ranks, name)
        seconds = time.process_time() - start
        yield case.row(name, sharding_plan(rectangles, PATH), bound, seconds)
    if peers is not None:
        try:
            rectangles, seconds, proposals = torchrec(case.tables, case.ranks, case.cap, peers)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(
                f"TorchRec, {len(case.tables)} tables, {case.ranks} ranks: {error}",
                file=sys.stderr,
            )
            return
        name = f"TorchRec, {proposals} proposals"
        yield case.row(name, sharding_plan(rectangles, PATH), bound, seconds)


def main() -> None:
    """Print the table."""
    parser = parser_of("planner", __doc__)
    parser.add_argument("--peers", type=Path, help="environment of TorchRec, such as .venv-peers")
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 8, 16, 64])
    parser.add_argument("--large", action="store_true", help="also 10,000 tables on 128 ranks")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sets = [(reuse_tables(), ranks) for ranks in given.ranks]
    sets += [(skewed_tables(1, 40), ranks) for ranks in (2, 4)]
    if given.large:
        sets.append((reuse_tables(1, 10_000), 128))
    head = ["tables", "ranks", "planner", "busiest / bound", "fullest rank", "CPU s"]
    print(*table_lines(head), sep="\n")
    for tables, ranks in sets:
        for row in rows(Case(tables, ranks, given.machine), given.peers):
            over = "" if row.memory_share <= 1 else " (over its cap)"
            above = f"{row.busiest_seconds / row.bound_seconds:.3f}"
            fullest = f"{row.memory_share:.0%}{over}"
            cells = [row.tables, row.ranks, row.planner, above, fullest, f"{row.cpu_seconds:.2f}"]
            print(row_text(cells), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory of this process, imports included: {peak / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
