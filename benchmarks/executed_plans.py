"""``python -m benchmarks.executed_plans --peers .venv-peers``: our plans and TorchRec's, executed.

The sparse part of random models trains under ``torchrun`` over gloo, by both plans in turn in the
same processes. Where the pages of a table lie changes the CPU time of a plan by as much as plans
differ: tables are allocated anew for each copy, and what counts is the mean of all copies. CPU
seconds are those of a rank's process, sockets included, and those of the thread that trains. The
bound is the least mean of the ranks of any plan, which is what equal ranks would need. ``halves``
is the ratio of the copies of odd and of even number of our plan: the error of the measurement.
``estimate`` is the busiest rank's step by our costs over what was measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.planner import torchrec
from benchmarks.planner_tables import (
    DrawnTable,
    SkewedTable,
    head_of,
    parser_of,
    row_of,
    sharding_plan,
    skewed_model,
)
from benchmarks.workers.executed_plans import (
    BATCH_SIZE,
    CLOCKS,
    FUSED_PARAMS,
    Copy,
    sparse_part,
)
from embershard.planner import (
    EmbeddingShardingPlanner,
    Machine,
    ParameterConstraints,
    Topology,
)
from embershard.sharding import EmbeddingBagCollectionSharder

PATH = "collection"
SAMPLED = 1 << 20
"""Lookups of a table that our planner's access counts stand for."""


def our_plan(tables: Sequence[SkewedTable], ranks: int, machine: Machine) -> tuple[str, float]:
    """As JSON, and the estimated seconds of the busiest rank."""
    planner = EmbeddingShardingPlanner(
        Topology(ranks, machine=machine),
        BATCH_SIZE,
        constraints={
            each.name: ParameterConstraints(
                pooling_factors=[each.pooling],
                access_counts=torch.from_numpy(SAMPLED * each.shares()),
            )
            for each in tables
        },
    )
    plan = planner.plan(sparse_part(tables), [EmbeddingBagCollectionSharder(FUSED_PARAMS)])
    return plan.to_json(), planner.report.step_seconds


def their_plan(tables: Sequence[SkewedTable], ranks: int, peers: Path) -> str:
    """TorchRec's, as JSON."""
    drawn = [DrawnTable(each.name, each.rows, each.dim, each.pooling, 0.0) for each in tables]
    rectangles, *_ = torchrec(drawn, ranks, 64 << 30, peers)
    return sharding_plan(rectangles, PATH).to_json()


class Measured:
    """A plan's steps: of each copy and rank the median of its blocks."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        self._ranks = {
            clock: np.array([np.median([each[clock] for each in blocks], 0) for blocks in copies])
            for clock in CLOCKS
        }

    def busiest(self, clock: str = "cpu_seconds", *, every: int = 1, first: int = 0) -> float:
        """Of the mean of copies; of every second one if asked for."""
        return float(self._ranks[clock][first::every].mean(0).max())

    def mean(self, clock: str) -> float:
        """Of all ranks."""
        return float(self._ranks[clock].mean())


class Gap:
    """Sums over models, of one clock."""

    def __init__(self, clock: str) -> None:
        self.clock = clock
        self.ours, self.theirs, self.bound = 0.0, 0.0, 0.0

    def add(self, ours: Measured, theirs: Measured) -> str:
        """A model; its row of the table."""
        found = ours.busiest(self.clock), theirs.busiest(self.clock)
        bound = min(ours.mean(self.clock), theirs.mean(self.clock))
        self.ours, self.theirs = self.ours + found[0], self.theirs + found[1]
        self.bound += bound
        closed = (found[1] - found[0]) / (found[1] - bound)
        return (
            f"{found[0] * 1e3:.2f} | {found[1] * 1e3:.2f} | {bound * 1e3:.2f} | {closed:.0%} | "
            f"{found[0] / found[1]:.3f}"
        )

    def __str__(self) -> str:
        closed = (self.theirs - self.ours) / (self.theirs - self.bound)
        return (
            f"{self.clock}: ours / TorchRec {self.ours / self.theirs:.3f}, gap closed {closed:.0%} "
            f"of {1 - self.bound / self.theirs:.1%}"
        )


def execute(request: Mapping[str, object], ranks: int) -> Iterator[dict[str, Measured]]:
    """Of each model, by planner, as it is measured."""
    launch = f"-W ignore -m torch.distributed.run --standalone --nproc-per-node {ranks} -m"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "request.json"
        file.write_text(json.dumps(request))
        worker = [*launch.split(), "benchmarks.workers.executed_plans", str(file)]
        process = subprocess.Popen(
            [sys.executable, *worker],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                yield {name: Measured(copies) for name, copies in json.loads(line).items()}
        if process.returncode:
            raise RuntimeError(f"ranks: expected to end with 0, got {process.returncode}")


def main() -> None:
    """Print a line for each model, and what the plans of all come to."""
    parser = parser_of("executed_plans", __doc__)
    parser.add_argument("--peers", type=Path, required=True, help="environment of TorchRec")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--plans", type=Path, help="keep plans here, and read those that are there")
    given = parser.parse_args()
    models, estimates = list[dict[str, object]](), list[float]()
    for seed in range(given.models):
        tables = skewed_model(seed)
        plan, estimate = our_plan(tables, given.ranks, given.machine)
        estimates.append(estimate)
        kept = None if given.plans is None else given.plans / f"{seed}.{given.ranks}.json"
        if kept is not None and kept.exists():
            theirs = kept.read_text()
        else:
            theirs = their_plan(tables, given.ranks, given.peers)
            if kept is not None:
                kept.write_text(theirs)
        models.append({"tables": tables, "plans": {"embershard": plan, "TorchRec": theirs}})
    sizes = {name: getattr(given, name) for name in ("copies", "blocks", "steps")}
    request = {"models": models, **sizes}
    side = ["ours, ms", "TorchRec", "bound", "closed", "ratio"]
    head = ["model", *(f"CPU: {each}" for each in side), *(f"thread: {each}" for each in side)]
    head += ["wall: ratio", "halves: CPU", "estimate"]
    print(head_of(head))
    gaps, errors = [Gap("cpu_seconds"), Gap("thread_seconds")], list[float]()
    found = zip(execute(request, given.ranks), estimates, strict=True)
    for seed, (sides, estimate) in enumerate(found):
        ours, theirs_found = sides["embershard"], sides["TorchRec"]
        errors.append(estimate / ours.busiest() - 1)
        halves = ours.busiest(every=2, first=1) / ours.busiest(every=2)
        wall = ours.busiest("seconds") / theirs_found.busiest("seconds")
        cells = [str(seed), *(each.add(ours, theirs_found) for each in gaps), f"{wall:.3f}"]
        cells += [f"{halves:.3f}", f"{1 + errors[-1]:.2f}"]
        print(row_of(cells), flush=True)
    print(*gaps, f"error of the estimate {np.mean(np.abs(errors)):.0%}", sep="; ")


if __name__ == "__main__":
    main()
