"""A new model whose weights depend on the seed alone, not on the ranks or the plan.

The dense part is drawn as if every table had one row. Each table is drawn in row blocks, by seed,
name and block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from embershard.data.row_batches import RowExamples
from embershard.errors import ConfigError, InputError
from embershard.kernels import FusedOptimizer
from embershard.models import build_model
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)
from embershard.package.rectangles import Shard
from embershard.planner import EmbeddingShardingPlanner
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    ShardingEnv,
)
from embershard.sharding.plan import tables_of
from embershard.sharding.sharders import Sharder
from embershard.sharding.tables import fill_shard
from embershard.training.auto_plan import auto_plan
from embershard.training.config import AUTO, RunConfig
from embershard.training.mapped_tables import MappedTables
from embershard.training.placement import plan_of

LISTS_OF_TABLES = ("tables", "sequence_tables")
META = torch.empty(0, device="meta")


def new_model(
    config: RunConfig,
    arguments: Mapping[str, Any],
    env: ShardingEnv | None,
    train: RowExamples,
    planned: Callable[[EmbeddingShardingPlanner], None],
) -> nn.Module:
    """A model to train.

    Args:
        config: of the run: the model's name, the optimizer of tables, the plan and the seed.
        arguments: for ``build_model``.
        env: the ranks over which tables are cut. None: whole tables in this process.
        train: whose lookups an automatic plan goes by.
        planned: called on rank 0 with the planner of an automatic plan.

    Raises:
        InputError: arguments that do not fit the model.
        ConfigError: a plan that does not fit it.
    """
    name, settings = config.model.name, config.training
    torch.manual_seed(settings.seed)
    model, collections = _without_tables(name, arguments)
    optimizer = FusedOptimizer(
        name=settings.table_optimizer, learning_rate=settings.table_learning_rate
    )
    if env is None:
        if settings.count_accesses:
            raise config.refusal(
                "training",
                "count_accesses",
                problem="expected ranks of torchrun (--nproc-per-node 1 will do), got a process "
                "alone",
            )
        for path, module in collections.items():
            _replace(model, path, _whole(module, optimizer, settings.seed))
        return model
    for path, module in collections.items():
        _replace(model, path, module)
    params = {
        "optimizer": optimizer.name,
        "learning_rate": optimizer.learning_rate,
        "eps": optimizer.eps,
    }
    sharders: list[Sharder] = [
        EmbeddingBagCollectionSharder(fused_params=params),
        EmbeddingCollectionSharder(fused_params=params),
    ]
    if config.sharding.plan == AUTO:
        plan = auto_plan(config, model, sharders, train, env, planned)
    else:
        plan = plan_of(config, collections, env.world_size)
    try:
        return DistributedModelParallel(
            model,
            env,
            plan=plan,
            sharders=sharders,
            seed=settings.seed,
            count_accesses=settings.count_accesses,
        )
    except ConfigError:
        raise
    except InputError as error:
        raise config.refusal("sharding", problem=str(error)) from error


def mapped_model(name: str, arguments: Mapping[str, Any], mapped: MappedTables) -> nn.Module:
    """A model whose tables are zero and lie in mapped files. Its other weights are new.

    Args:
        name: of the model.
        arguments: for ``build_model``.
        mapped: gets the tables.

    Raises:
        InputError: arguments that do not fit the model.
        OSError: a file cannot be made.
    """
    model, collections = _without_tables(name, arguments)
    for path, module in collections.items():
        _replace(model, path, module)
    mapped.place(model)
    return model


def _without_tables(
    name: str, arguments: Mapping[str, Any]
) -> tuple[nn.Module, dict[str, EmbeddingBagCollection | EmbeddingCollection]]:
    """A model whose tables have one row, and by path the collections to put there, on meta."""
    small = {key: _of_one_row(value) for key, value in arguments.items() if key in LISTS_OF_TABLES}
    model = build_model(name, {**arguments, **small, "fused": None})
    rows = {table["name"]: table["num_embeddings"] for key in small for table in arguments[key]}
    collections = {
        path: _on_meta(module, rows)
        for path, module in model.named_modules()
        if isinstance(module, EmbeddingBagCollection | EmbeddingCollection)
    }
    return model, collections


def _of_one_row(tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**table, "num_embeddings": 1} if "num_embeddings" in table else table for table in tables
    ]


def _on_meta(
    module: EmbeddingBagCollection | EmbeddingCollection, rows: Mapping[str, int]
) -> EmbeddingBagCollection | EmbeddingCollection:
    if isinstance(module, EmbeddingBagCollection):
        bags = [
            replace(table, num_embeddings=rows[table.name])
            for table in module.embedding_bag_configs()
        ]
        return EmbeddingBagCollection(bags, module.is_weighted(), device=torch.device("meta"))
    tables = [
        replace(table, num_embeddings=rows[table.name]) for table in module.embedding_configs()
    ]
    return EmbeddingCollection(tables, device=torch.device("meta"))


def _whole(
    module: EmbeddingBagCollection | EmbeddingCollection, optimizer: FusedOptimizer, seed: int
) -> nn.Module:
    settings: dict[str, Any] = {
        "optimizer": optimizer.name,
        "learning_rate": optimizer.learning_rate,
        "eps": optimizer.eps,
    }
    fused: FusedEmbeddingBagCollection | FusedEmbeddingCollection
    if isinstance(module, EmbeddingBagCollection):
        fused = FusedEmbeddingBagCollection(
            module.embedding_bag_configs(), is_weighted=module.is_weighted(), **settings
        )
        weights = fused.embedding_bags
    else:
        fused = FusedEmbeddingCollection(module.embedding_configs(), **settings)
        weights = fused.embeddings
    for table in tables_of(fused):
        whole = Shard(
            table=table.name,
            rows=(0, table.num_embeddings),
            columns=(0, table.embedding_dim),
            devices=(0,),
        )
        fill_shard(table, whole, META, seed, into=weights[table.name].weight)
    return fused


def _replace(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, module)
