"""A rank that trains the sparse part of models by several plans in turn, under ``torchrun``:

python -m benchmarks.workers.executed_plans REQUEST.json

The request lists models: their tables, and by name of a planner the plan. Rank 0 prints a line of
JSON for each model: by name of a planner, of each copy and block the seconds of a step of each
rank: of the wall clock, of the process and of the thread that trains.

Physical pages are the luck of an allocation: tables are allocated anew for each copy.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.planner_tables import SkewedTable, collection_of
from benchmarks.sharded_step import Pooled, start_rank
from embershard.jagged import KeyedJaggedTensor
from embershard.malloc_options import set_malloc_options
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingEnv,
    ShardingPlan,
)

BATCH_SIZE = 512
BATCHES = 4
CLOCKS = {
    "seconds": time.perf_counter,
    "cpu_seconds": time.process_time,
    "thread_seconds": time.thread_time,
}
FUSED_PARAMS = {"optimizer": "rowwise_adagrad", "learning_rate": 0.01}


Copy: TypeAlias = list[dict[str, list[float]]]
"""Of each block of one copy: seconds of each rank, by clock."""


def sparse_part(tables: Sequence[SkewedTable]) -> Pooled:
    """Without weights yet."""
    return Pooled(collection_of(tables))


def main() -> None:
    """Joins the ranks, then trains one model after the other."""
    request = json.loads(Path(sys.argv[1]).read_text())
    set_malloc_options(os.environ)  # As `embershard train` does.
    start_rank()
    env = ShardingEnv.from_process_group(dist.group.WORLD)  # Groups of one model stay for all.
    for model in request["models"]:
        tables = [SkewedTable(*each) for each in model["tables"]]
        batches = _batches(tables, dist.get_rank())
        gradient = torch.full((BATCH_SIZE, sum(each.dim for each in tables)), 1e-3)
        found: dict[str, list[Copy]] = {name: [] for name in model["plans"]}
        for copy in range(request["copies"]):
            names = list(found)[:: -1 if copy % 2 else 1]
            sides = {name: _sharded(tables, model["plans"][name], env) for name in names}
            for name in names:
                found[name].append([])
            for block in range(-1, request["blocks"]):
                for name in names[:: -1 if block % 2 else 1]:
                    measured = _timed(sides[name], batches, gradient, request["steps"])
                    if block >= 0:
                        found[name][-1].append(measured)
            del sides
            gc.collect()  # FBGEMM's modules refer to themselves, and hold the tables.
        if dist.get_rank() == 0:
            print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def _sharded(
    tables: Sequence[SkewedTable], plan: str, env: ShardingEnv
) -> DistributedModelParallel:
    return DistributedModelParallel(
        sparse_part(tables),
        env,
        plan=ShardingPlan.from_json(plan),
        sharders=[EmbeddingBagCollectionSharder(FUSED_PARAMS)],
    )


def _batches(tables: Sequence[SkewedTable], seed: int) -> list[KeyedJaggedTensor]:
    generator = np.random.default_rng(seed)
    lengths = np.array(
        [generator.poisson(each.pooling, (BATCHES, BATCH_SIZE)) for each in tables]
    ).swapaxes(0, 1)
    ids = [
        np.split(each.draw(int(counts.sum()), generator), np.cumsum(counts)[:-1])
        for each, counts in zip(tables, lengths.sum(2).T, strict=True)
    ]
    return [
        KeyedJaggedTensor(
            [each.name for each in tables],
            torch.from_numpy(np.concatenate([each[at] for each in ids])),
            lengths=torch.from_numpy(lengths[at].flatten()),
        )
        for at in range(BATCHES)
    ]


def _timed(
    model: DistributedModelParallel,
    batches: Sequence[KeyedJaggedTensor],
    gradient: Tensor,
    steps: int,
) -> dict[str, list[float]]:
    dist.barrier()
    started = _clocks()
    for step in range(steps):
        model(batches[step % len(batches)]).backward(gradient)
    used = (_clocks() - started) / steps
    everyone = [torch.zeros_like(used) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, used)
    return dict(zip(CLOCKS, torch.stack(everyone).T.tolist(), strict=True))


def _clocks() -> Tensor:
    return torch.tensor([clock() for clock in CLOCKS.values()], dtype=torch.float64)


if __name__ == "__main__":
    main()
