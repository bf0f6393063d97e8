"""What a run begins with: its data, its model without the weights of tables, and its plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from embershard.data.base import Dataset
from embershard.data.row_batches import RowExamples, batches, to_rows
from embershard.errors import ConfigError, InputError
from embershard.kernels import FusedOptimizer
from embershard.planner import EmbeddingShardingPlanner, PlanReport
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    ShardingEnv,
    ShardingPlan,
)
from embershard.sharding.environment import agree, from_rank_0
from embershard.sharding.plan_checks import chosen_sharders
from embershard.sharding.sharders import Sharder
from embershard.training.auto_plan import auto_plan, machine_of
from embershard.training.config import AUTO, RunConfig, ShardingConfig
from embershard.training.initial_model import Collection, fill_whole, fused_settings, meta_model
from embershard.training.parts import model_arguments
from embershard.training.placement import plan_of

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSetup:
    """Checked, the same on every rank."""

    config: RunConfig
    dataset: Dataset[Any]
    env: ShardingEnv | None
    """The ranks. None: this process alone."""

    train: RowExamples
    valid: RowExamples
    model: Mapping[str, Any]
    """Name and arguments, as a checkpoint keeps them."""

    module: nn.Module
    """Its tables are on device meta."""

    collections: Mapping[str, Collection]
    """Of the module, by path."""

    sharders: Sequence[Sharder]
    plan: ShardingPlan
    planner: EmbeddingShardingPlanner | None
    """On rank 0, of an automatic plan."""

    def show_plan(self, planned: Callable[[PlanReport], None] | None) -> None:
        """Call ``planned`` on rank 0 if the plan is automatic. Every rank calls this. Raises
        ConfigError if it raised: the same message on every rank."""

        def show() -> None:
            if self.planner is not None and planned is not None:
                planned(self.planner.report)

        if self.env is not None and self.config.sharding.plan == AUTO:
            from_rank_0(self.env.process_group, show, error=ConfigError)

    def build(self) -> nn.Module:
        """The module with new weights: sharded, or whole in a process alone."""
        settings = self.config.training
        if self.env is None:
            fill_whole(self.module, self.collections, _optimizer(self.config), settings.seed)
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
    """Check the settings of a run with its data, and plan it. Every rank calls this.

    Raises:
        ConfigError: settings that fit neither each other nor the data; with file and line.
        InputError: examples that cannot be looked up.
    """
    group = None if env is None else env.process_group
    train, valid = agree(group, lambda: _rows(config, dataset), error=ConfigError)
    _check(config, train, env)
    name, seed = config.model.name, config.training.seed
    try:
        arguments = model_arguments(config.model, config.training, dataset)
        torch.manual_seed(seed)
        module, collections = meta_model(name, arguments)
    except ConfigError:
        raise
    except InputError as error:
        raise config.refusal("model", problem=str(error)) from error
    params = fused_settings(_optimizer(config))
    sharders: list[Sharder] = [
        EmbeddingBagCollectionSharder(fused_params=params),
        EmbeddingCollectionSharder(fused_params=params),
    ]
    planner: EmbeddingShardingPlanner | None = None
    try:
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
    except ConfigError:
        raise
    except InputError as error:
        given = config.sharding.plan
        if given in (None, AUTO):
            raise config.refusal("sharding", problem=str(error)) from error
        raise config.refusal("sharding", "plan", problem=f"{given}: {error}") from error
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


def _rows(config: RunConfig, dataset: Dataset[Any]) -> tuple[RowExamples, RowExamples]:
    """What is trained on, and what training looks at."""
    _check_splits(config, dataset)
    return to_rows(dataset.train), to_rows(dataset.valid)


def _check_splits(config: RunConfig, dataset: Dataset[Any]) -> None:
    for name in ("train", "valid", "test"):
        labels = getattr(dataset, name).labels
        kinds = {0.0, 1.0} if name != "train" else set[float]()  # Those an AUC is made of.
        if not len(labels) or not kinds <= set(np.unique(labels).tolist()):
            problem = f"expected examples with labels 0 and 1 in the {name} split, got "
            got = f"{len(labels)} examples of mean {labels.mean()}" if len(labels) else "none"
            raise config.refusal("data", problem=problem + got)


def _check(config: RunConfig, train: RowExamples, env: ShardingEnv | None) -> None:
    settings = config.training
    for name, share in settings.id_dropout.items():
        try:
            batches(train, batch_size=1, shuffle_seed=0, id_dropout={name: share})
        except InputError as error:
            problem = str(error).partition(": ")[2]
            raise config.refusal("training", "id_dropout", name, problem=problem) from error
    if "warmup_start" in settings.model_fields_set and not settings.warmup_steps:
        raise config.refusal(
            "training", "warmup_start", problem="expected warmup_steps with it, got none"
        )
    if settings.count_accesses and env is None:
        raise config.refusal(
            "training",
            "count_accesses",
            problem="expected ranks of torchrun (--nproc-per-node 1 will do), got a process alone",
        )


def _check_ignored(config: RunConfig, collections: Mapping[str, Collection]) -> None:
    """The ``[sharding]`` section of a process alone."""
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
