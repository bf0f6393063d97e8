"""``python -m benchmarks.executed_plans --peers .venv-peers``: our plans and TorchRec's, executed.

The sparse part of random models trains under ``torchrun`` over gloo, by both plans in turn in the
same processes, and by ours a second time: its ratio to itself is the error of the measurement. CPU
seconds are those of a rank's process; the bound is the least mean of the ranks of any plan, which
is what equal ranks would need. ``estimate`` is the busiest rank's step by our costs over what was
measured, and its mean absolute error that of all models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.planner import torchrec
from benchmarks.planner_tables import DrawnTable, SkewedTable, skewed_model
from benchmarks.workers.executed_plans import BATCH_SIZE, FUSED_PARAMS, sparse_part
from embershard.package.rectangles import Shard
from embershard.planner import (
    EmbeddingShardingPlanner,
    Machine,
    ParameterConstraints,
    Topology,
    read_machine,
)
from embershard.planner.default_machine import default_machine
from embershard.sharding import (
    EmbeddingBagCollectionSharder,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)

PATH, AGAIN = "collection", "embershard, again"
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
    found = {
        name: ParameterSharding(
            sharding_type="column_wise",  # A name: what is executed are the rectangles.
            compute_kernel="fused",
            sharding_spec=tuple(
                Shard(table=name, rows=(first, end), columns=(left, right), devices=(rank,))
                for first, end, left, right, rank in shards
            ),
        )
        for name, shards in rectangles.items()
    }
    return ShardingPlan({PATH: EmbeddingModuleShardingPlan(found)}).to_json()


class Measured(NamedTuple):
    """A plan's steps: the median of its blocks."""

    seconds: float
    busiest: float
    """CPU seconds of the busiest rank."""

    mean: float
    """Of all ranks."""


def measured(blocks: Sequence[Mapping[str, object]]) -> Measured:
    """Of all blocks of a plan."""
    cpu = np.array([each["cpu_seconds"] for each in blocks])
    seconds = np.array([each["seconds"] for each in blocks], dtype=float)
    return Measured(
        float(np.median(seconds)), float(np.median(cpu.max(1))), float(np.median(cpu.mean(1)))
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
                yield {name: measured(blocks) for name, blocks in json.loads(line).items()}
        if process.returncode:
            raise RuntimeError(f"ranks: expected to end with 0, got {process.returncode}")


def main() -> None:
    """Print a line for each model, and what the plans of all come to."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.executed_plans", description=__doc__
    )
    parser.add_argument("--peers", type=Path, required=True, help="environment of TorchRec")
    parser.add_argument("--machine", type=Path, help="a calibration; default: the one that ships")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--plans", type=Path, help="keep plans here, and read those that are there")
    given = parser.parse_args()
    machine = default_machine() if given.machine is None else read_machine(given.machine)
    models, estimates = list[dict[str, object]](), list[float]()
    for seed in range(given.models):
        tables = skewed_model(seed)
        plan, estimate = our_plan(tables, given.ranks, machine)
        estimates.append(estimate)
        kept = None if given.plans is None else given.plans / f"{seed}.{given.ranks}.json"
        if kept is not None and kept.exists():
            theirs = kept.read_text()
        else:
            theirs = their_plan(tables, given.ranks, given.peers)
            if kept is not None:
                kept.write_text(theirs)
        models.append(
            {"tables": tables, "plans": {"embershard": plan, "TorchRec": theirs, AGAIN: plan}}
        )
    request = {"models": models, "blocks": given.blocks, "steps": given.steps}
    head = [
        "tables", "ours, CPU ms", "TorchRec", "bound", "gap closed", "ours / TorchRec: CPU", "wall",
        "ours / ours: CPU", "wall", "estimate",
    ]  # fmt: skip
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    gained, gap, errors = 0.0, 0.0, list[float]()
    for seed, (each, estimate) in enumerate(
        zip(execute(request, given.ranks), estimates, strict=True)
    ):
        ours, theirs_measured, again = (each[name] for name in ("embershard", "TorchRec", AGAIN))
        bound = min(found.mean for found in each.values())
        errors.append(abs(estimate / ours.busiest - 1))
        gained += theirs_measured.busiest - ours.busiest
        gap += theirs_measured.busiest - bound
        closed = (theirs_measured.busiest - ours.busiest) / (theirs_measured.busiest - bound)
        print(
            f"| {len(skewed_model(seed))} | {ours.busiest * 1e3:.2f} | "
            f"{theirs_measured.busiest * 1e3:.2f} | {bound * 1e3:.2f} | {closed:.0%} | "
            f"{ours.busiest / theirs_measured.busiest:.3f} | "
            f"{ours.seconds / theirs_measured.seconds:.3f} | {again.busiest / ours.busiest:.3f} | "
            f"{again.seconds / ours.seconds:.3f} | {estimate / ours.busiest:.2f} |",
            flush=True,
        )
    print(f"gap closed, all models: {gained / gap:.0%}; error of the estimate, the mean: ", end="")
    print(f"{np.mean(errors):.0%}")


if __name__ == "__main__":
    main()
