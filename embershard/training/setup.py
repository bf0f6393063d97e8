"""The setup of a run: its data, its model without the weights of tables, and its plan."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from embershard.data.base import Dataset, Examples
from embershard.data.row_batches import as_split, unknown_rows
from embershard.data.splits import Split
from embershard.errors import ConfigError, InputError
from embershard.kernels import FusedOptimizer
from embershard.package.samples import SampleRequest
from embershard.planner import EmbeddingShardingPlanner, PlanReport
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    ShardingEnv,
    ShardingPlan,
)
from embershard.sharding.environment import agree, from_rank_0
from embershard.sharding.held_tables import count_accesses
from embershard.sharding.plan_checks import chosen_sharders
from embershard.sharding.sharders import Sharder
from embershard.training.auto_plan import auto_plan, machine_of
from embershard.training.config import AUTO, RunConfig, ShardingConfig
from embershard.training.initial_model import (
    Collection,
    fill_whole,
    fused_settings,
    meta_model,
    model_arguments,
)
from embershard.training.placement import plan_of
from embershard.training.steps import batch_sizes
from embershard.training.trackers import check_tracking

LOG = logging.getLogger(__name__)

SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """The checked setup, the same on every rank."""

    config: RunConfig
    dataset: Dataset[Any]
    env: ShardingEnv | None
    """The ranks; None if there is only this process."""

    train: Split
    valid: Split
    """Without examples if the run has no validation split."""

    model: Mapping[str, Any]
    """Name and arguments of the model, in a checkpoint's form."""

    module: nn.Module
    """Its tables are on device meta."""

    collections: Mapping[str, Collection]

    sharders: Sequence[Sharder]
    plan: ShardingPlan
    planner: EmbeddingShardingPlanner | None
    """The planner of an automatic plan, on rank 0."""

    def samples(self) -> list[SampleRequest]:
        return (self.valid if len(self.valid) else self.train).samples(SAMPLES)

    def show_plan(self, planned: Callable[[PlanReport], None] | None) -> None:
        """Call ``planned`` on rank 0 if the plan is automatic. Every rank calls this. Raises
        ConfigError on every rank if ``planned`` raised."""

        def show() -> None:
            if self.planner is not None and planned is not None:
                planned(self.planner.report)

        if self.env is not None and self.config.sharding.plan == AUTO:
            from_rank_0(self.env.process_group, show, error=ConfigError)

    def build(self) -> nn.Module:
        """The module with new weights, sharded if there are ranks."""
        settings = self.config.training
        if self.env is None:
            fill_whole(self.module, self.collections, _optimizer(self.config), settings.seed)
            if settings.count_accesses:
                count_accesses(self.module)
            return self.module
        return DistributedModelParallel(
            self.module,
            self.env,
            plan=self.plan,
            sharders=self.sharders,
            seed=settings.seed,
            count_accesses=settings.count_accesses,
        )


def set_up(config: RunConfig, dataset: Dataset[Any], env: ShardingEnv | None) -> RunSetup:
    """Check the settings of a run with its data, and plan it. Every rank calls this. Raises
    ConfigError, with file and line, for settings that contradict each other or the data; InputError
    for examples that cannot be looked up."""
    group = None if env is None else env.process_group
    rank = 0 if env is None else env.rank
    train, valid = agree(group, lambda: _splits(config, dataset, rank), error=ConfigError)
    _check(config, train, env)
    name, seed = config.model.name, config.training.seed
    with config.refusing("model"):
        arguments = model_arguments(config.model, config.training, dataset, config.tasks)
        torch.manual_seed(seed)
        module, collections = meta_model(name, arguments, dataset.schema)
    params = fused_settings(_optimizer(config))
    sharders: list[Sharder] = [
        EmbeddingBagCollectionSharder(fused_params=params),
        EmbeddingCollectionSharder(fused_params=params),
    ]
    planner: EmbeddingShardingPlanner | None = None
    plan_file = config.sharding.plan
    has_file = plan_file not in (None, AUTO)
    key, what = (["plan"], f"{plan_file}: ") if has_file else ([], "")
    with config.refusing("sharding", *key, what=what):
        if env is None:
            whole = config.model_copy(update={"sharding": ShardingConfig()})
            plan = plan_of(whole, collections, world_size=1, local_size=1)
            _check_ignored(config, collections)
        else:
            if config.sharding.plan == AUTO:
                plan, planner = auto_plan(config, module, sharders, train, env)
            else:
                plan = plan_of(config, collections, env.world_size)
            chosen_sharders(module, plan, sharders, env)
    return RunSetup(
        config=config,
        dataset=dataset,
        env=env,
        train=train,
        valid=valid,
        model={"name": name, "arguments": arguments},
        module=module,
        collections=collections,
        sharders=sharders,
        plan=plan,
        planner=planner,
    )


def _splits(config: RunConfig, dataset: Dataset[Any], rank: int) -> tuple[Split, Split]:
    """The splits for training and for validation. Rank 0 warns of tasks that are not measured."""
    for name in ("train", "valid", "test"):
        split = getattr(dataset, name)
        if not len(split) and name != "train":
            continue
        problems = _label_problems(config, name, split)
        if problems and (name == "train" or len(problems) == len(config.tasks)):
            raise config.refusal("data", problem=problems[0])
        for problem in problems:
            if rank == 0:
                LOG.warning("data: %s; the task is not measured there", problem)
    return as_split(dataset.train), as_split(dataset.valid)


def _label_problems(config: RunConfig, name: str, split: Examples | Split) -> list[str]:
    """A sentence for each task whose labels do not allow training, or an AUC or error."""
    means, problems = split.label_means(), []
    if len(means) != len(config.tasks):
        expected = f"expected labels of tasks {list(config.tasks)} in the {name} split"
        raise config.refusal("tasks", problem=f"{expected}, got {len(means)} columns")
    for column, (task_name, task) in enumerate(config.tasks.items()):
        mean, is_binary = means[column], task.loss == "bce"
        if is_binary and isinstance(split, Examples):
            labels = split.labels.reshape(-1, len(means))[:, column]
            other = labels[(labels != 0) & (labels != 1) & ~np.isnan(labels)]
            if len(other):
                expected = f"expected labels 0 and 1 of task {task_name!r} in the {name} split"
                problem = f"{expected}, got {other[0]}"
                raise config.refusal("data", problem=problem)
        needs_both = is_binary and name != "train"
        if (0 < mean < 1) if needs_both else not math.isnan(mean):
            continue
        kinds = "labels 0 and 1" if is_binary else "labels"
        expected = f"expected examples with {kinds} of task {task_name!r} in the {name} split"
        values = "no labels" if math.isnan(mean) else f"labels of mean {mean}"
        got = f"{len(split)} examples with {values}" if len(split) else "none"
        problems.append(f"{expected}, got {got}")
    return problems


def _check(config: RunConfig, train: Split, env: ShardingEnv | None) -> None:
    config.check_model()
    check_tracking(config)
    settings = config.training
    for name, share in settings.id_dropout.items():
        try:
            unknown_rows(train.schema, {name: share})
        except InputError as error:
            problem = str(error).partition(": ")[2]
            raise config.refusal("training", "id_dropout", name, problem=problem) from error
    for name, needed in (("warmup_start", "warmup_steps"), ("decay_end", "decay")):
        if name in settings.model_fields_set and not getattr(settings, needed):
            problem = f"expected {needed} with it, got none"
            raise config.refusal("training", name, problem=problem)
    if settings.decay is None or not settings.warmup_steps:
        return
    steps = sum(map(len, batch_sizes(settings, train, 1 if env is None else env.world_size)))
    if settings.warmup_steps >= steps:
        problem = f"expected a warm-up shorter than the run's {steps} steps, since decay follows it"
        got = f"{problem}; got {settings.warmup_steps}"
        raise config.refusal("training", "warmup_steps", problem=got)


def _check_ignored(config: RunConfig, collections: Mapping[str, Collection]) -> None:
    """Check the ``[sharding]`` section, which a process without ranks ignores."""
    if not config.sharding.model_fields_set:
        return
    if config.sharding.plan == AUTO:
        machine_of(config)
    else:
        plan_of(config, collections, world_size=1, local_size=1)
    LOG.warning(
        "sharding: checked and ignored in one process; start it with torchrun "
        "--nproc-per-node N to cut tables"
    )


def _optimizer(config: RunConfig) -> FusedOptimizer:
    settings = config.training
    return FusedOptimizer(name=settings.table_optimizer, learning_rate=settings.table_learning_rate)
