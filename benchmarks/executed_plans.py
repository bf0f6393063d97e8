"""``python -m benchmarks.executed_plans --peers .venv-peers``: our plans and TorchRec's, executed.

The sparse part of random models trains under ``torchrun`` over gloo, by both plans in turn in the
same processes. Where the pages of a table lie changes the CPU time of a plan by as much as plans
differ: tables are allocated anew for each copy, and what counts is the mean of all copies. What a
rank does besides lookups and updates varies by as much from block to block: blocks are long. CPU
seconds are those of a rank's process, sockets included, and those of the thread that trains. The
bound is the least mean of the ranks of any plan, which is what equal ranks would need. ``halves``
is the ratio of the copies of odd and of even number of our plan: the error of the measurement.
``estimate`` is the busiest rank's step by our costs over what was measured.

``--replan STEPS``: our plan first trains so many steps, half of which time each table, and is made
anew by what they measured; both are executed beside TorchRec's. ``CPU: closed`` chooses the busiest
rank of a plan by what it measures, so that errors of the measurement make a plan of equal ranks
look busier; ``apart`` chooses it by half of the copies and measures it by the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.local import torchrun
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
    OPTIMIZER,
    Copy,
    Parts,
    sparse_part,
)
from embershard.planner import (
    EmbeddingShardingPlanner,
    Machine,
    MeasuredRun,
    ParameterConstraints,
    Topology,
    recalibrate,
)
from embershard.planner.measured_run import StepSeconds, measured_tables, rank_seconds
from embershard.sharding import EmbeddingBagCollectionSharder

PATH = "collection"
OURS, REPLANNED, TORCHREC = "embershard", "replanned", "TorchRec"
GAPS = {"cpu_seconds": "CPU", "thread_seconds": "thread"}
TIMED_COPIES = 2
SAMPLED = 1 << 20
"""Lookups of a table that our planner's access counts stand for."""


class Ours(NamedTuple):
    """A plan of ours, as JSON, and what its planner says."""

    plan: str
    seconds: float
    """Of the busiest rank."""

    planner: EmbeddingShardingPlanner


def our_plan(tables: Sequence[SkewedTable], ranks: int, machine: Machine) -> Ours:
    """By the costs of a machine."""
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
    return Ours(plan.to_json(), planner.report.step_seconds, planner)


def replanned(
    tables: Sequence[SkewedTable], before: Ours, copies: Sequence[Sequence[Parts]], machine: Machine
) -> Ours:
    """Our plan by what a run of the one before measured, as `embershard plan --recalibrate`."""
    planner = before.planner
    together = np.mean([[own for own, _ in ranks] for ranks in copies], 0)
    by_table = [
        {
            name: np.mean([ranks[rank][1][name] for ranks in copies], 0)
            for name in copies[0][rank][1]
        }
        for rank in range(len(together))
    ]
    run = MeasuredRun(
        optimizer=OPTIMIZER,
        steps=1,
        estimated=tuple(rank_seconds(each) for each in planner.shard_seconds),
        measured=tuple(rank_seconds(each[:3]) for each in together),
        step=StepSeconds(estimated=before.seconds, measured=0),
        tables=measured_tables(planner.table_seconds, by_table),
    )
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder))
        return our_plan(tables, len(together), recalibrate(folder, machine))


def their_plan(tables: Sequence[SkewedTable], ranks: int, peers: Path) -> str:
    """TorchRec's, as JSON."""
    drawn = [DrawnTable(each.name, each.rows, each.dim, each.pooling, 0.0) for each in tables]
    rectangles, *_ = torchrec(drawn, ranks, 64 << 30, peers)
    return sharding_plan(rectangles, PATH).to_json()


Steps: TypeAlias = dict[str, NDArray[np.float64]]
"""Seconds of a plan's steps by clock, ``[copies, ranks]``."""


def steps_of(copies: Sequence[Copy]) -> Steps:
    """Of each copy the median of its blocks."""
    return {
        clock: np.array([np.median([each[clock] for each in blocks], 0) for blocks in copies])
        for clock in CLOCKS
    }


def busiest(steps: NDArray[np.float64]) -> float:
    """The rank with the largest mean of copies."""
    return float(steps.mean(0).max())


def busiest_apart(steps: NDArray[np.float64]) -> float:
    """Likewise, the rank chosen by half of the copies and measured by the others."""
    halves = steps[::2].mean(0), steps[1::2].mean(0)
    return float(np.mean([halves[1][halves[0].argmax()], halves[0][halves[1].argmax()]]))


def gap_of(
    sides: Mapping[str, Steps],
    name: str,
    clock: str,
    of_busiest: Callable[[NDArray[np.float64]], float] = busiest,
) -> NDArray[np.float64]:
    """Seconds of the busiest rank by a plan and by TorchRec's, and the bound."""
    bound = min(float(each[clock].mean()) for each in sides.values())
    return np.array([of_busiest(sides[each][clock]) for each in (name, TORCHREC)] + [bound])


def closed_by(gap: NDArray[np.float64]) -> float:
    """The share of the gap that our plan closes."""
    ours, theirs, bound = gap
    return float((theirs - ours) / (theirs - bound))


def lines_of(request: Mapping[str, object], ranks: int) -> Iterator[Any]:
    """What the worker says of each model, as it is measured."""
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
            yield from map(json.loads, process.stdout)
        if process.returncode:
            raise RuntimeError(f"ranks: expected to end with 0, got {process.returncode}")


class Executed(NamedTuple):
    """A model, by planner the steps that were measured, and of our planners the estimate."""

    seed: int
    sides: dict[str, Steps]
    estimates: dict[str, float]


def rows_of(one: Executed) -> Iterator[str]:
    """A row for each plan of ours."""
    for name, estimate in one.estimates.items():
        cells = [str(one.seed), name]
        for clock in GAPS:
            gap = gap_of(one.sides, name, clock)
            cells += [*(f"{each * 1e3:.2f}" for each in gap), f"{closed_by(gap):.0%}"]
        steps, walls = one.sides[name], [one.sides[each]["seconds"] for each in (name, TORCHREC)]
        cpu = steps["cpu_seconds"]
        cells.append(f"{busiest(walls[0]) / busiest(walls[1]):.3f}")
        cells.append(f"{busiest(cpu[1::2]) / busiest(cpu[::2]):.3f}")
        yield row_of([*cells, f"{estimate / busiest(cpu):.2f}"])


def totals_of(found: Sequence[Executed]) -> Iterator[str]:
    """What the plans of all models come to."""
    for name in found[0].estimates:
        for clock in GAPS:
            for how, chosen in {"": busiest, ", apart": busiest_apart}.items():
                gap = sum(gap_of(each.sides, name, clock, chosen) for each in found)
                ours, theirs, bound = np.asarray(gap)
                yield (
                    f"{name}: {clock}{how}: {ours / theirs:.3f} of TorchRec, gap closed "
                    f"{closed_by(np.asarray(gap)):.0%} of {1 - bound / theirs:.1%}"
                )
        walls = [
            busiest(each.sides[name]["seconds"]) / busiest(each.sides[TORCHREC]["seconds"])
            for each in found
        ]
        errors = [
            abs(each.estimates[name] / busiest(each.sides[name]["cpu_seconds"]) - 1)
            for each in found
        ]
        yield (
            f"{name}: wall {np.mean(walls):.3f} of TorchRec ({min(walls):.3f} .. "
            f"{max(walls):.3f}, {sum(each > 1.03 for each in walls)} of {len(walls)} over 1.03), "
            f"error of the estimate {np.mean(errors):.0%}"
        )


def main() -> None:
    """Print a row for each plan of ours of each model, and what the plans of all come to."""
    parser = parser_of("executed_plans", __doc__)
    parser.add_argument("--peers", type=Path, required=True, help="environment of TorchRec")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", type=int, nargs="+", default=list(range(10)), help="seeds")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument(
        "--replan", type=int, metavar="STEPS", help="of a run that tables are timed in"
    )
    parser.add_argument("--plans", type=Path, help="keep plans here, and read those that are there")
    parser.add_argument("--kept", type=Path, help="add what is measured to what this file has")
    given = parser.parse_args()
    tables = {seed: skewed_model(seed) for seed in given.models}
    plans = {
        seed: {OURS: our_plan(each, given.ranks, given.machine)} for seed, each in tables.items()
    }
    sizes = {name: getattr(given, name) for name in ("copies", "blocks", "steps")}
    if given.replan:
        timed = [
            {"tables": tables[seed], "plans": {OURS: plans[seed][OURS].plan}} for seed in tables
        ]
        request = {"models": timed, "timed_steps": given.replan, "copies": TIMED_COPIES}
        seconds = np.zeros(2)
        for seed, copies in zip(tables, lines_of(request, given.ranks), strict=True):
            seconds += np.mean([own[2:] for ranks in copies for own, _ in ranks], 0)
            before = plans[seed][OURS]
            plans[seed][REPLANNED] = replanned(tables[seed], before, copies, given.machine)
        print(f"a step that times each table takes {seconds[1] / seconds[0]:.2f} of another one")
    models = list[dict[str, object]]()
    for seed, each in tables.items():
        kept = None if given.plans is None else given.plans / f"{seed}.{given.ranks}.json"
        if kept is not None and kept.exists():
            theirs = kept.read_text()
        else:
            theirs = their_plan(each, given.ranks, given.peers)
            if kept is not None:
                kept.write_text(theirs)
        ours = {name: plan.plan for name, plan in plans[seed].items()}
        models.append({"tables": each, "plans": {**ours, TORCHREC: theirs}})
    sides = ["ours, ms", "TorchRec", "bound", "closed"]
    head = ["model", "plan", *(f"{name}: {each}" for name in GAPS.values() for each in sides)]
    print(head_of([*head, "wall: ratio", "halves: CPU", "estimate"]))
    found = list[Executed]()
    if given.kept is not None and given.kept.exists():
        found += map(_read, given.kept.read_text().splitlines())
    for seed, line in zip(tables, lines_of({"models": models, **sizes}, given.ranks), strict=True):
        steps = {name: steps_of(copies) for name, copies in line.items()}
        estimates = {name: plan.seconds for name, plan in plans[seed].items()}
        found.append(Executed(seed, steps, estimates))
        print("\n".join(rows_of(found[-1])), flush=True)
        if given.kept is not None:
            with given.kept.open("a") as file:
                file.write(f"{json.dumps([seed, line, estimates])}\n")
    print("\n".join(totals_of(found)))


def _read(line: str) -> Executed:
    seed, sides, estimates = json.loads(line)
    return Executed(seed, {name: steps_of(each) for name, each in sides.items()}, estimates)


if __name__ == "__main__":
    main()
