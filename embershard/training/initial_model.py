"""A new model whose weights depend only on the seed, not on the ranks or the plan. The dense part
is drawn as if every table had one row. Each table is drawn in blocks of rows, by seed, name and
block."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import nn

from embershard.data.base import Dataset
from embershard.data.tasks import DEFAULT_TASKS, TaskConfig
from embershard.errors import ConfigError, InputError
from embershard.kernels import FusedOptimizer
from embershard.models import ModelConfig, build_model
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    PoolingType,
)
from embershard.package.schema import Schema
from embershard.sharding.collection import fill_replicas
from embershard.sharding.sharders import tables_in
from embershard.sharding.types import tables_of
from embershard.training.config import TrainingConfig

Collection: TypeAlias = EmbeddingBagCollection | EmbeddingCollection
LISTS_OF_TABLES = ("tables", "sequence_tables")


def model_arguments(
    config: ModelConfig,
    training: TrainingConfig,
    dataset: Dataset[Any],
    tasks: Mapping[str, TaskConfig] = DEFAULT_TASKS,
) -> dict[str, Any]:
    """Arguments for ``build_model``: one table for each hint of the data set."""
    ids = {item.name: item.ids for item in dataset.schema.sparse}
    tables = []
    for hint in dataset.tables:
        id_map = ids[hint.features[0]]
        if id_map is None:
            raise ConfigError(f"table {hint.name!r}: expected an id map to size it, got none")
        try:
            table = EmbeddingBagConfig(
                name=hint.name,
                num_embeddings=id_map.num_rows,
                embedding_dim=config.embedding_dim,
                feature_names=hint.features,
                pooling=PoolingType[hint.pooling.upper()],
            )
        except InputError as error:
            raise ConfigError(f"data: {error}") from error
        tables.append(table)
    return config.arguments(
        tables,
        schema=dataset.schema,
        fused=FusedOptimizer(
            name=training.table_optimizer, learning_rate=training.table_learning_rate
        ),
        tasks={name: task.loss for name, task in tasks.items()},
    )


def small_model(name: str, arguments: Mapping[str, Any], schema: Schema) -> nn.Module:
    """A model whose tables have one row."""
    small = {
        key: [
            {**table, "num_embeddings": 1} if "num_embeddings" in table else table
            for table in lists
        ]
        for key, lists in arguments.items()
        if key in LISTS_OF_TABLES
    }
    return build_model(name, {**arguments, **small, "fused": None}, schema=schema)


def meta_model(
    name: str, arguments: Mapping[str, Any], schema: Schema
) -> tuple[nn.Module, dict[str, Collection]]:
    """``build_model`` with tables on device meta, and the collections by module path. Raises
    InputError if the arguments do not fit the model."""
    model = small_model(name, arguments, schema)
    rows = {
        table["name"]: table["num_embeddings"]
        for key in LISTS_OF_TABLES
        for table in arguments.get(key, [])
    }
    collections = {
        path: _on_meta(module, rows)
        for path, module in model.named_modules()
        if isinstance(module, Collection)
    }
    for path, module in collections.items():
        model.set_submodule(path, module)
    return model, collections


def fused_settings(optimizer: FusedOptimizer) -> dict[str, Any]:
    """Arguments of fused collections, and ``fused_params`` of sharders."""
    return {
        "optimizer": optimizer.name,
        "learning_rate": optimizer.learning_rate,
        "eps": optimizer.eps,
    }


def fill_whole(
    model: nn.Module, collections: Mapping[str, Collection], optimizer: FusedOptimizer, seed: int
) -> None:
    """Replace a model's collections on device meta by fused ones with new weights."""
    settings = fused_settings(optimizer)
    for path, module in collections.items():
        fused: FusedEmbeddingBagCollection | FusedEmbeddingCollection
        if isinstance(module, EmbeddingBagCollection):
            fused = FusedEmbeddingBagCollection(
                module.embedding_bag_configs(), is_weighted=module.is_weighted(), **settings
            )
        else:
            fused = FusedEmbeddingCollection(module.embedding_configs(), **settings)
        fill_replicas(tables_of(fused), tables_in(module), seed, into=tables_in(fused))
        model.set_submodule(path, fused)


def _on_meta(module: Collection, rows: Mapping[str, int]) -> Collection:
    device = torch.device("meta")
    tables: list[Any] = [
        replace(table, num_embeddings=rows[table.name]) for table in tables_of(module)
    ]
    if isinstance(module, EmbeddingBagCollection):
        return EmbeddingBagCollection(tables, module.is_weighted(), device=device)
    return EmbeddingCollection(tables, device=device)
