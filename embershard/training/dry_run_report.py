"""A dry run: all work up to the first step, without the weights of tables. It writes no file."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from embershard.data.base import Dataset
from embershard.data.row_batches import as_split
from embershard.errors import ConfigError
from embershard.formatting import megabytes_text, table_lines
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import EmbeddingBagCollection
from embershard.planner import PlanReport
from embershard.sharding import ShardingEnv, ShardingType
from embershard.sharding.environment import from_rank_0
from embershard.sharding.shard_memory import (
    BATCHES_AHEAD,
    FLOAT_BYTES,
    id_bytes,
    received_bytes,
    state_bytes,
    weight_bytes,
)
from embershard.sharding.types import tables_of
from embershard.training.config import RunConfig
from embershard.training.forward import logits_of
from embershard.training.initial_model import small_model
from embershard.training.last_checkpoints import RunState
from embershard.training.run_folder import checkpoints_to_resume, folder_of
from embershard.training.setup import RunSetup, set_up
from embershard.training.steps import batch_sizes

DENSE_STATES = {"adagrad": 1, "adam": 2, "sgd": 0}
"""Numbers that a dense optimizer keeps for each parameter."""


@dataclass(slots=True)
class RankMemory:
    """Bytes of memory of one rank."""

    tables: float = 0
    """Weights of its shards and replicas."""

    state: float = 0
    """State of the tables' optimizers and access counts; gradients of tables that the dense
    optimizer trains."""

    dense: float = 0
    """Parameters, gradients and optimizer of the rest."""

    step: float = 0
    """Ids and vectors of a step."""

    @property
    def total(self) -> float:
        return self.tables + self.state + self.dense + self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The plan of a run, and the memory that it needs."""

    setup: RunSetup
    memory: list[RankMemory]

    step: int
    """Step to resume after; 0 starts from scratch."""

    def to_text(self) -> str:
        config, dataset = self.setup.config, self.setup.dataset
        world_size = 1 if self.setup.env is None else self.setup.env.world_size
        sizes_of_epochs = batch_sizes(config.training, self.setup.train, world_size)
        epochs = [len(epoch) for epoch in sizes_of_epochs]
        begins = f"resumes after step {self.step}" if self.step else "begins anew"
        sizes = (len(split) for split in (dataset.train, dataset.valid, dataset.test))
        lines = [
            "data        {:,} training, {:,} validation, {:,} test examples".format(*sizes),
            f"steps       at most {sum(epochs):,}, {epochs[0]:,} an epoch, of "
            f"{config.training.batch_size:,} examples",
            f"checkpoint  {folder_of(config)}: {begins}",
        ]
        tables = list[tuple[object, ...]]()
        for path, module in self.setup.collections.items():
            for table in tables_of(module):
                cut = self.setup.plan.plan[path][table.name]
                cells = f"{path}.{table.name}", f"{table.num_embeddings:,}", table.embedding_dim
                shards = f"{cut.sharding_type} x {len(cut.sharding_spec)}"
                tables.append((*cells, shards, ", ".join(map(str, cut.ranks))))
        memory = [
            (rank, *map(megabytes_text, (m.total, m.tables, m.state, m.dense, m.step)))
            for rank, m in enumerate(self.memory)
        ]
        parts = ("tables", "optimizer state", "dense part", "a step's ids and vectors")
        lines += ["", *table_lines(("table", "rows", "dim", "cut", "ranks"), tables)]
        lines += ["", *table_lines(("rank", "MB", *parts), memory)]
        return "\n".join(lines) + "\n"


def dry_run(
    config: RunConfig,
    dataset: Dataset[Any],
    *,
    overwrite: bool = False,
    resume: bool = False,
    env: ShardingEnv | None = None,
    job: str | None = None,
    planned: Callable[[PlanReport], None] | None = None,
) -> DryRun:
    """Check all that a run needs before its first step; arguments and errors are those of
    ``train``."""
    checkpoints = checkpoints_to_resume(
        config,
        dataset,
        data=dataset.digest(),
        overwrite=overwrite,
        resume=resume,
        env=env,
        job=job,
    )
    group = None if env is None else env.process_group
    from_rank_0(group, lambda: _check_folder(config), error=ConfigError)
    setup = set_up(config, dataset, env)
    setup.show_plan(planned)
    as_split(dataset.test)  # A run refuses a bad test split only after training.
    setup.samples()
    return DryRun(
        setup=setup,
        memory=rank_memory(setup, _run_first_batch(setup)),
        step=next((state.step for _, state in checkpoints if isinstance(state, RunState)), 0),
    )


def _check_folder(config: RunConfig) -> None:
    folder = folder_of(config).absolute()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        problem = f"expected a folder that can be written, got {nearest}"
        raise config.refusal("checkpoint", "folder", problem=problem)


def _run_first_batch(setup: RunSetup) -> dict[str, int]:
    """Number of ids of each feature in the first batch, after a forward pass of the dense part."""
    training = setup.config.training
    batch = next(
        setup.train.batches(
            batch_size=training.batch_size,
            shuffle_seed=training.seed * training.epochs,
            id_dropout=training.id_dropout,
        )
    )
    sparse = batch.sparse
    first = KeyedJaggedTensor(
        sparse.keys(),
        sparse.values().clamp(max=0),  # Rows 0, or -1: tables of one row have them.
        lengths=sparse.lengths(),
        stride_per_key_per_rank=(
            sparse.stride_per_key_per_rank() if sparse.variable_stride_per_key() else None
        ),
        inverse_indices=sparse.inverse_indices_or_none(),
    )
    module = small_model(setup.model["name"], setup.model["arguments"], setup.dataset.schema)
    with torch.no_grad():
        logits_of(module, batch._replace(sparse=first), setup.train.schema)
    return dict(zip(sparse.keys(), sparse.length_per_key(), strict=True))


def rank_memory(setup: RunSetup, ids: Mapping[str, float]) -> list[RankMemory]:
    """The memory of each rank; see docs/sharding.md, "Memory of a rank". ``ids`` has the number of
    ids of each feature in a batch of all ranks."""
    settings, size = setup.config.training, 1 if setup.env is None else setup.env.world_size
    ahead = 0 if setup.env is None else BATCHES_AHEAD
    # A gradient and the optimizer's numbers, for each parameter that the dense optimizer trains.
    trained = (True,) * (1 + DENSE_STATES[settings.dense_optimizer])
    dense = sum(weight.numel() for weight in setup.module.parameters() if not weight.is_meta)
    ranks = [RankMemory(dense=dense * FLOAT_BYTES * (1 + len(trained))) for _ in range(size)]
    for path, module in setup.collections.items():
        plan, is_pooled = setup.plan.plan[path], isinstance(module, EmbeddingBagCollection)
        sharder = next(sharder for sharder in setup.sharders if sharder.can_shard(module))
        optimizers = sharder.optimizers(module, plan, where=path, device="cpu")
        for table in tables_of(module):
            optimizer = optimizers.get(table.name)
            state_columns = optimizer.state_columns if optimizer else trained
            is_replicated = plan[table.name].sharding_type == ShardingType.DATA_PARALLEL.value
            for shard in plan[table.name].sharding_spec:
                rows, columns = (end - start for start, end in (shard.rows, shard.columns))
                for rank in shard.devices:
                    ranks[rank].tables += weight_bytes(rows, columns, table.data_type)
                    ranks[rank].state += state_bytes(
                        rows, columns, state_columns, count_accesses=settings.count_accesses
                    )
                # A replica looks up its own rank's batch, so nothing is exchanged.
                for feature in () if is_replicated else table.feature_names:
                    count, bags = ids[feature] * rows / table.num_embeddings, settings.batch_size
                    ranks[shard.devices[0]].step += received_bytes(
                        columns,
                        count,
                        bags,
                        id_bytes=id_bytes(module),
                        is_pooled=is_pooled,
                        batches_ahead=ahead,
                    )
                    vectors = 2 * FLOAT_BYTES * columns * (bags if is_pooled else count)
                    for memory in ranks:
                        memory.step += vectors / size
    return ranks
