"""A new model whose weights depend on the seed alone, not on the ranks or the plan.

The dense part is drawn as if every table had one row. Each table is drawn in row blocks, by seed,
name and block.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import nn

from embershard.kernels import FusedOptimizer
from embershard.models import build_model
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)
from embershard.package.schema import Schema
from embershard.sharding.collection import fill_replicas
from embershard.sharding.sharders import tables_in
from embershard.sharding.types import tables_of

Collection: TypeAlias = EmbeddingBagCollection | EmbeddingCollection
LISTS_OF_TABLES = ("tables", "sequence_tables")


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
    """A model for ``build_model`` whose tables are on device meta, and its collections by path.
    Raises InputError if the arguments do not fit the model."""
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
    """Of fused collections, and ``fused_params`` of sharders."""
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
