"""A run up to its first step: what it would do, without weights of tables or a file written."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from embershard.data.base import Dataset
from embershard.data.requests import sample_requests
from embershard.data.row_batches import batches, to_rows
from embershard.errors import ConfigError
from embershard.formatting import megabytes_text
from embershard.jagged import KeyedJaggedTensor
from embershard.planner import PlanReport
from embershard.sharding import ShardingEnv
from embershard.sharding.environment import from_rank_0
from embershard.sharding.types import tables_of
from embershard.training.config import RunConfig
from embershard.training.initial_model import small_model
from embershard.training.rank_memory import RankMemory, rank_memory
from embershard.training.resuming import RunState
from embershard.training.run import SAMPLES
from embershard.training.run_folder import begin, folder_of
from embershard.training.setup import RunSetup, set_up
from embershard.training.steps import steps_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a run would do."""

    setup: RunSetup
    memory: list[RankMemory]
    """Of each rank."""

    step: int
    """That it begins behind. 0: it begins anew."""

    def to_text(self) -> str:
        """As a summary, and tables of tables and ranks."""
        config, dataset = self.setup.config, self.setup.dataset
        per_epoch, steps = steps_of(config, len(self.setup.train))
        begins = f"resumes behind step {self.step}" if self.step else "begins anew"
        sizes = (len(split) for split in (dataset.train, dataset.valid, dataset.test))
        lines = [
            "data        {:,} training, {:,} validation, {:,} test examples".format(*sizes),
            f"steps       at most {steps:,}, {per_epoch:,} an epoch, of "
            f"{config.training.batch_size:,} examples",
            f"checkpoint  {folder_of(config)}: {begins}",
            "",
            "| table | rows | dim | cut | ranks |",
            "|---|---|---|---|---|",
        ]
        for path, module in self.setup.collections.items():
            for table in tables_of(module):
                cut = self.setup.plan.plan[path][table.name]
                lines.append(
                    f"| {path}.{table.name} | {table.num_embeddings:,} | {table.embedding_dim} "
                    f"| {cut.sharding_type} x {len(cut.sharding_spec)} "
                    f"| {', '.join(map(str, cut.ranks))} |"
                )
        lines += [
            "",
            "| rank | MB | tables | optimizer state | dense part | a step's ids and vectors |",
            "|---|---|---|---|---|---|",
        ]
        for rank, each in enumerate(self.memory):
            parts = (each.total, each.tables, each.state, each.dense, each.step)
            lines.append(f"| {rank} | {' | '.join(megabytes_text(part) for part in parts)} |")
        return "\n".join(lines) + "\n"


def dry_run(
    config: RunConfig,
    dataset: Dataset,
    *,
    overwrite: bool = False,
    resume: bool = False,
    env: ShardingEnv | None = None,
    job: str | None = None,
    planned: Callable[[PlanReport], None] | None = None,
) -> DryRun:
    """Check all that a run needs before its first step; arguments and errors are those of
    ``train``."""
    found = begin(config, dataset, overwrite=overwrite, resume=resume, env=env, job=job)
    group = None if env is None else env.process_group
    from_rank_0(group, lambda: _check_folder(config), error=ConfigError)
    setup = set_up(config, dataset, env)
    setup.show_plan(planned)
    to_rows(dataset.test)  # Refuses what a run would after training.
    sample_requests(dataset.valid, SAMPLES)
    return DryRun(
        setup=setup,
        memory=rank_memory(setup, _run_first_batch(setup)),
        step=next((state.step for _, state in found if isinstance(state, RunState)), 0),
    )


def _check_folder(config: RunConfig) -> None:
    folder = folder_of(config).absolute()
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        problem = f"expected a folder that can be written, got {nearest}"
        raise config.refusal("checkpoint", "folder", problem=problem)


def _run_first_batch(setup: RunSetup) -> dict[str, int]:
    """Ids of each feature in the first batch, which the dense part must take."""
    training = setup.config.training
    batch = next(
        batches(
            setup.train,
            batch_size=training.batch_size,
            shuffle_seed=training.seed * training.epochs,
            id_dropout=training.id_dropout,
        )
    )
    sparse = batch.sparse
    first = KeyedJaggedTensor(
        sparse.keys(), sparse.values().clamp(max=0), lengths=sparse.lengths()
    )  # Rows 0, or -1: tables of one row have them.
    module = small_model(setup.model["name"], setup.model["arguments"])
    with torch.no_grad():
        module(batch.dense, first)
    return dict(zip(sparse.keys(), sparse.length_per_key(), strict=True))
