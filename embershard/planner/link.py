"""``measure_link``: costs of messages between two ranks of this machine, over gloo.

``python -m embershard.planner.link RANK STORE SIZES`` is one of the processes; rank 0 prints
seconds.

A rank with tables also unpacks ids, packs and sends vectors, and receives their gradients. Here
rank 0 has all tables and rank 1 none. The cost of an exchange is the difference of their CPU
seconds of a step, minus those of lookups and updates. The seconds of rank 1 are those of its own
batch, which are the same under any plan.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from embershard.jagged import KeyedJaggedTensor
from embershard.malloc_options import set_malloc_options
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.planner.machine import Link
from embershard.sharding import (
    EmbeddingBagCollectionSharder,
    EmbeddingModuleShardingPlan,
    ShardingEnv,
    construct_module_sharding_plan,
    table_wise,
)
from embershard.sharding.embeddingbag import ShardedEmbeddingBagCollection
from embershard.sharding.tables import LookupClock

MESSAGE_BYTES = (1 << 12, 1 << 18, 1 << 22)
REPEATS = 20
TIMEOUT_SECONDS = 100
OPTIMIZER = "sgd"
"""The optimizer with the shortest update."""

ROWS, EXAMPLES = 100, 512
CASES: Final = (
    (24, 32, 1), (48, 32, 1), (24, 64, 32), (24, 128, 1), (48, 128, 8), (8, 256, 8), (24, 256, 1),
    (32, 256, 4),
)  # fmt: skip
"""Number of tables, columns, and ids a bag."""

BLOCKS, STEPS = 15, 4
"""Blocks of a case, and steps of a block. The median over blocks counts."""


class Exchanged(NamedTuple):
    """CPU seconds of a step with all tables on one of two ranks. The tables fit the cache."""

    ids: int
    bags: int
    row_bytes: int
    seconds: float
    """CPU time of the rank with tables minus that of the other, without lookups and updates."""

    own_seconds: float
    """CPU time of the other rank."""

    socket_seconds: float
    """CPU time of both ranks in threads that send and receive."""


def measure_link(
    cases: Sequence[tuple[int, int, int]] = CASES, blocks: int = BLOCKS
) -> tuple[Link, list[Exchanged]]:
    """Measure an all-to-all of two ranks by size, and steps with the tables on one of them. Raises
    RuntimeError if a process failed, or did not answer in ``TIMEOUT_SECONDS``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "embershard.planner.link"]
        processes = [
            subprocess.Popen(
                [*command, str(rank), f"{folder}/store", json.dumps([cases, blocks])],
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        try:
            output, _ = processes[0].communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(
                f"calibrate: no message between two ranks in {TIMEOUT_SECONDS} s"
            ) from error
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    if processes[0].returncode:
        raise RuntimeError(f"calibrate: rank 0 ended with {processes[0].returncode}")
    seconds, steps = json.loads(output)
    slope, _ = np.polyfit(2 * np.array(MESSAGE_BYTES, dtype=float), seconds, 1)
    link = Link(latency_seconds=min(seconds), bytes_per_second=float(1 / slope))
    return link, [Exchanged(*step) for step in steps]


def _measure(
    rank: int, store: str, cases: Sequence[tuple[int, int, int]], blocks: int
) -> tuple[list[float], list[Exchanged]]:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT_SECONDS),
    )
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    measured = _message_seconds(), list(_steps(env, cases, blocks))
    dist.barrier()
    dist.destroy_process_group()
    return measured


def _message_seconds() -> list[float]:
    shortest = list[float]()
    for size in MESSAGE_BYTES:
        sent = torch.zeros(2 * size, dtype=torch.uint8)
        received = torch.empty_like(sent)
        seconds = list[float]()
        for _ in range(REPEATS):
            dist.barrier()
            start = time.perf_counter()
            dist.all_to_all_single(received, sent)
            seconds.append(time.perf_counter() - start)
        shortest.append(min(seconds))
    return shortest


def _steps(
    env: ShardingEnv, cases: Sequence[tuple[int, int, int]], blocks: int
) -> Iterator[Exchanged]:
    generator = torch.Generator().manual_seed(env.rank)
    sharder = EmbeddingBagCollectionSharder({"optimizer": OPTIMIZER})
    for count, dim, length in cases:
        names = [f"t{at}" for at in range(count)]
        tables = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name=name, num_embeddings=ROWS, embedding_dim=dim, feature_names=[name]
                )
                for name in names
            ],
            device=torch.device("meta"),
        )
        plan = construct_module_sharding_plan(
            tables, {name: table_wise(rank=0) for name in names}, local_size=2, world_size=2
        )
        sharded = sharder.shard(
            tables, EmbeddingModuleShardingPlan(plan), env, where="calibrate", seed=0
        )
        assert isinstance(sharded, ShardedEmbeddingBagCollection)
        clock = sharded.tables.clock = LookupClock()
        ids = torch.randint(ROWS, (count * EXAMPLES * length,), generator=generator)
        lengths = torch.full((count * EXAMPLES,), length)
        features = KeyedJaggedTensor(names, ids, lengths=lengths)
        gradient = torch.full((EXAMPLES, count * dim), 1e-6)
        used = torch.stack(
            [_cpu_seconds(sharded, clock, features, gradient) for _ in range(blocks)]
        )
        everyone = [torch.empty_like(used) for _ in range(2)]
        dist.all_gather(everyone, used)
        (seconds, sent), (own, received) = (times.median(0).values.tolist() for times in everyone)
        yield Exchanged(
            ids=2 * len(ids),
            bags=2 * len(lengths),
            row_bytes=4 * dim,
            seconds=seconds - own,
            own_seconds=own,
            socket_seconds=sent + received,
        )


def _cpu_seconds(
    sharded: torch.nn.Module,
    clock: LookupClock,
    features: KeyedJaggedTensor,
    gradient: Tensor,
) -> Tensor:
    """CPU seconds of a step without lookups and updates, and those of other threads."""
    dist.barrier()
    clock.lookup_seconds = clock.update_seconds = 0.0
    started, own = time.process_time(), time.thread_time()
    for _ in range(STEPS):
        sharded(features).values().backward(gradient)
    used, own = time.process_time() - started, time.thread_time() - own
    beside = used - clock.lookup_seconds - clock.update_seconds
    return torch.tensor([beside, used - own], dtype=torch.float64) / STEPS


if __name__ == "__main__":
    set_malloc_options(os.environ)
    measured = _measure(int(sys.argv[1]), sys.argv[2], *json.loads(sys.argv[3]))
    if sys.argv[1] == "0":
        print(json.dumps(measured))
