"""``plan = "auto"``: plans a run by measured costs and the lookups of the training split."""

import copy
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from embershard.data.splits import Split
from embershard.errors import ConfigError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.memory_limit import memory_limit
from embershard.modules import EmbeddingBagConfig, EmbeddingConfig
from embershard.modules.tables import embedding_names
from embershard.planner import (
    EmbeddingShardingPlanner,
    Machine,
    ParameterConstraints,
    Topology,
    read_machine,
)
from embershard.planner.machine import default_machine
from embershard.planner.planner import STORAGE_RESERVATION
from embershard.sharding import ShardingEnv, ShardingPlan
from embershard.sharding.environment import from_rank_0, local_world_size
from embershard.sharding.sharders import Sharder, shardable
from embershard.sharding.types import tables_of
from embershard.training.config import RunConfig
from embershard.training.forward import logits_of
from embershard.training.losses import loss_of
from embershard.training.steps import dense_optimizer

BATCH_SIZE = 1 << 16
EXAMPLES_MAX = 1 << 20
"""Number of examples whose lookups are counted, rounded up to whole batches."""
FIRST_STEPS, STEPS = 2, 5
"""Steps that are measured; the first ones allocate memory and are left out."""


def auto_plan(
    config: RunConfig,
    model: nn.Module,
    sharders: Sequence[Sharder],
    train: Split,
    env: ShardingEnv,
) -> tuple[ShardingPlan, EmbeddingShardingPlanner | None]:
    """Plan on rank 0 by the lookups of ``train``. Every rank calls this and receives the same plan;
    rank 0 also receives the planner. Raises ConfigError on every rank if no plan fits in memory, or
    the machine's file cannot be read."""
    planner: EmbeddingShardingPlanner | None = None

    def build() -> str:
        nonlocal planner
        plan, planner = _planned(config, model, sharders, train, env)
        return plan.to_json()

    text = from_rank_0(env.process_group, build, error=ConfigError)
    return ShardingPlan.from_json(text), planner


def _planned(
    config: RunConfig,
    model: nn.Module,
    sharders: Sequence[Sharder],
    train: Split,
    env: ShardingEnv,
) -> tuple[ShardingPlan, EmbeddingShardingPlanner]:
    world_size = env.world_size
    local_size = local_world_size(world_size)
    tables = [table for _, module, _ in shardable(model, sharders) for table in tables_of(module)]
    topology = topology_of(config, env, local_size)
    dense_seconds = 0.0  # It is not measured on a GPU.
    if env.device.type == "cpu":
        dense_seconds = dense_step_seconds(config, model, sharders, train, world_size)
    planner = EmbeddingShardingPlanner(
        topology,
        math.ceil(config.training.batch_size / world_size),
        constraints=_constraints(config, tables, train),
        dense_seconds=dense_seconds + _all_reduce_seconds(model, sharders, topology),
        count_accesses=config.training.count_accesses,
        pipelined=True,
    )
    with config.refusing("sharding", "plan"):
        return planner.plan(model, sharders), planner


def topology_of(config: RunConfig, env: ShardingEnv, local_size: int) -> Topology:
    """The topology of these ranks, ``local_size`` on each host, with the memory of rank 0."""
    own, of_host = config.sharding.memory_bytes, memory_limit() // local_size
    machine = machine_of(config)
    if env.device.type == "cpu":
        return Topology(
            env.world_size, ddr_cap=own or of_host, local_world_size=local_size, machine=machine
        )
    free, total = torch.cuda.mem_get_info(env.device)
    return Topology(
        env.world_size,
        "cuda",
        hbm_cap=own or free,
        # The data and an asynchronous checkpoint's copy also need memory.
        ddr_cap=int(of_host * (1 - STORAGE_RESERVATION)),
        local_world_size=local_size,
        machine=machine or default_machine("cuda", total),
    )


def machine_of(config: RunConfig) -> Machine | None:
    """The machine of ``sharding.machine``; None if default costs are used."""
    if config.sharding.machine is None:
        return None
    with config.refusing("sharding", "machine"):
        return read_machine(Path(config.sharding.machine).expanduser())


def _all_reduce_seconds(model: nn.Module, sharders: Sequence[Sharder], topology: Topology) -> float:
    tables = {
        id(parameter)
        for _, module, _ in shardable(model, sharders)
        for parameter in module.parameters()
    }
    values = sum(weight.numel() for weight in model.parameters() if id(weight) not in tables)
    return topology.all_reduce_seconds(values)


def _constraints(
    config: RunConfig, tables: Sequence[EmbeddingConfig], train: Split
) -> dict[str, ParameterConstraints]:
    """Mean ids of a bag, and accesses of each row, counted over the training split."""
    ids = {name: list[Tensor]() for table in tables for name in table.feature_names}
    examples = 0
    for batch in train.batches(
        batch_size=BATCH_SIZE,
        shuffle_seed=config.training.seed,
        id_dropout=config.training.id_dropout,
    ):
        for name, parts in ids.items():
            values = batch.sparse[name].values()
            parts.append(values[values >= 0])
        examples += len(batch.labels)
        if examples >= EXAMPLES_MAX:
            break
    constraints = dict[str, ParameterConstraints]()
    for table in tables:
        looked_up = [torch.cat(ids[name]) for name in table.feature_names]
        constraints[table.name] = ParameterConstraints(
            pooling_factors=[len(rows) / examples for rows in looked_up],
            access_counts=torch.bincount(torch.cat(looked_up), minlength=table.num_embeddings),
        )
    return constraints


class _ZeroVectors(nn.Module):
    """A collection without tables, whose vectors are zeros with a gradient."""

    def __init__(self, collection: nn.Module) -> None:
        super().__init__()
        self._configs = tables_of(collection)
        self._is_pooled = all(isinstance(table, EmbeddingBagConfig) for table in self._configs)

    def forward(self, features: KeyedJaggedTensor) -> KeyedTensor | dict[str, JaggedTensor]:
        names = embedding_names(self._configs)
        lookups = [(table, name) for table in self._configs for name in table.feature_names]
        if self._is_pooled:
            dims = [table.embedding_dim for table, _ in lookups]
            pooled = torch.zeros(features.stride(), sum(dims), requires_grad=True)
            return KeyedTensor(names, dims, pooled)
        lists = [(features[name], table.embedding_dim) for table, name in lookups]
        vectors = [
            JaggedTensor(
                torch.zeros(len(ids.values()), dim, requires_grad=True), lengths=ids.lengths()
            )
            for ids, dim in lists
        ]
        return dict(zip(names, vectors, strict=True))

    def embedding_configs(self) -> list[EmbeddingConfig]:
        return self._configs


def dense_step_seconds(
    config: RunConfig,
    model: nn.Module,
    sharders: Sequence[Sharder],
    train: Split,
    world_size: int,
) -> float:
    """CPU seconds of a rank's step without lookups, updates and messages: the median of a few steps
    of a copy of the model, whose collections may be on device meta."""
    twin = copy.deepcopy(model)
    for path, module, _ in list(shardable(twin, sharders)):
        twin.set_submodule(path, _ZeroVectors(module))
    settings, seconds = config.training, list[float]()
    optimizer = dense_optimizer(twin, settings)
    source = train.batches(
        batch_size=settings.batch_size,
        shuffle_seed=settings.seed,
        id_dropout=settings.id_dropout,
        world_size=world_size,
    )
    with torch.random.fork_rng(devices=[]):
        started = time.process_time()
        for _, batch in zip(range(FIRST_STEPS + STEPS), source, strict=False):
            logits = logits_of(twin, batch, train.schema, kinds=(_ZeroVectors,))
            loss = loss_of(logits, batch, config.tasks.values()) / len(logits)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            now = time.process_time()
            seconds.append(now - started)
            started = now
    return float(np.median(seconds[FIRST_STEPS:] or seconds)) if seconds else 0.0
