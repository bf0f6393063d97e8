"""``python -m benchmarks.executed_plans --peers .venv-peers``: our plans and TorchRec's, executed.

The sparse part of random models trains under ``torchrun`` over gloo, by both plans in turn in the
same processes. Where the pages of a table lie changes the CPU time of a plan by as much as plans
differ: tables are allocated anew for each copy, and what counts is the mean of all copies. What a
rank does besides lookups and updates varies by as much from block to block: blocks are long. CPU
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
from numpy.typing import NDArray

from benchmarks.local import torchrun
from benchmarks.planner import torchrec
from benchmarks.planner_tables import (
    DrawnTable,
    SkewedTable,
    parser_of,
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
from embershard.formatting import row_text, table_lines
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
    report = planner.report
    return plan.to_json(), report.busiest_seconds + report.common_seconds


def their_plan(tables: Sequence[SkewedTable], ranks: int, peers: Path) -> str:
    """TorchRec's, as JSON."""
    drawn = [DrawnTable(each.name, each.rows, each.dim, each.pooling, 0.0) for each in tables]
    rectangles, *_ = torchrec(drawn, ranks, 64 << 30, peers)
    return sharding_plan(rectangles, PATH).to_json()


def steps_of(copies: Sequence[Copy]) -> dict[str, NDArray[np.float64]]:
    """Seconds of a plan's steps by clock, ``[copies, ranks]``: of each copy the median of its
    blocks."""
    return {
        clock: np.array([np.median([each[clock] for each in blocks], 0) for blocks in copies])
        for clock in CLOCKS
    }


def busiest(steps: NDArray[np.float64]) -> float:
    """The rank with the largest mean of copies."""
    return float(steps.mean(0).max())


def gap_of(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds of the busiest rank by our plan and by theirs, and the bound."""
    return np.array([busiest(ours), busiest(theirs), min(ours.mean(), theirs.mean())])


def closed_by(gap: NDArray[np.float64]) -> float:
    """The share of the gap that our plan closes."""
    ours, theirs, bound = gap
    return float((theirs - ours) / (theirs - bound))


def execute(
    request: Mapping[str, object], ranks: int
) -> Iterator[dict[str, dict[str, NDArray[np.float64]]]]:
    """Of each model, by planner, `steps_of` its plan, as it is measured."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "request.json"
        file.write_text(json.dumps(request))
        worker = [*torchrun(ranks), "benchmarks.workers.executed_plans", str(file)]
        process = subprocess.Popen(
            [sys.executable, *worker],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                yield {name: steps_of(copies) for name, copies in json.loads(line).items()}
        if process.returncode:
            raise RuntimeError(f"ranks: expected to end with 0, got {process.returncode}")


def main() -> None:
    """Print a line for each model, and what the plans of all come to."""
    parser = parser_of("executed_plans", __doc__)
    parser.add_argument("--peers", type=Path, required=True, help="environment of TorchRec")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", type=int, nargs="+", default=list(range(10)), help="seeds")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--plans", type=Path, help="keep plans here, and read those that are there")
    given = parser.parse_args()
    models, estimates = list[dict[str, object]](), list[float]()
    for seed in given.models:
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
    print(*table_lines(head), sep="\n")
    gaps = {clock: np.zeros(3) for clock in ("cpu_seconds", "thread_seconds")}
    errors = list[float]()
    found = zip(given.models, execute(request, given.ranks), estimates, strict=True)
    for seed, sides, estimate in found:
        ours, torchrecs = sides["embershard"], sides["TorchRec"]
        cells = [str(seed)]
        for clock, total in gaps.items():
            gap = gap_of(ours[clock], torchrecs[clock])
            total += gap
            cells += [f"{each * 1e3:.2f}" for each in gap]
            cells += [f"{closed_by(gap):.0%}", f"{gap[0] / gap[1]:.3f}"]
        cpu = ours["cpu_seconds"]
        errors.append(estimate / busiest(cpu) - 1)
        cells.append(f"{busiest(ours['seconds']) / busiest(torchrecs['seconds']):.3f}")
        cells.append(f"{busiest(cpu[1::2]) / busiest(cpu[::2]):.3f}")
        print(row_text([*cells, f"{1 + errors[-1]:.2f}"]), flush=True)
    for clock, (our_sum, their_sum, bound) in gaps.items():
        print(
            f"{clock}: ours / TorchRec {our_sum / their_sum:.3f}, gap closed "
            f"{closed_by(gaps[clock]):.0%} of {1 - bound / their_sum:.1%}"
        )
    print(f"error of the estimate {np.mean(np.abs(errors)):.0%}")


if __name__ == "__main__":
    main()
