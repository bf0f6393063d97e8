"""Two towers in words: as a run's file asks for them, and as a checkpoint rebuilds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn

from embershard.kernels import FusedOptimizer
from embershard.models.arguments import (
    EmbeddingDim,
    Layers,
    ModelArguments,
    Part,
    build_bags,
    fused_arguments,
    table_arguments,
)
from embershard.models.two_tower import TwoTower
from embershard.modules import EmbeddingBagConfig
from embershard.modules.tables import embedding_names
from embershard.package.schema import Schema, Scope


class TwoTowerConfig(Part):
    """What a person chooses of two towers; the section ``[model]`` of a run's file.

    Inputs of the request scope are the user's, those of the example scope the item's.
    """

    name: Literal["two_tower"] = "two_tower"
    """The model."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""

    tower_layers: Layers = (64, 32)
    """Layers of either tower; the last is as wide as the vectors, and linear."""

    def arguments(
        self,
        tables: Sequence[EmbeddingBagConfig],
        *,
        schema: Schema,
        fused: FusedOptimizer | None,
    ) -> dict[str, Any]:
        """The arguments for ``build_model``, as JSON's types.

        Args:
            tables: of ``embedding_dim``.
            schema: whose scopes tell the towers' inputs.
            fused: how tables train in backward. None: plain tables.
        """
        scopes = {item.name: item.scope for item in schema.sparse}
        features = [feature for table in tables for feature in table.feature_names]
        keys = embedding_names(tables)

        def columns(scope: Scope) -> list[int]:
            return [place for place, item in enumerate(schema.dense) if item.scope == scope]

        def outputs(scope: Scope) -> list[str]:
            found = zip(features, keys, strict=True)
            return [key for feature, key in found if scopes[feature] == scope]

        document = _Arguments(
            tables=table_arguments(tables),
            user_columns=columns("request"),
            user_features=outputs("request"),
            item_columns=columns("example"),
            item_features=outputs("example"),
            tower_layer_sizes=list(self.tower_layers),
            fused=fused_arguments(fused),
        )
        return document.model_dump()


def build_two_tower(arguments: Mapping[str, Any], device: torch.device | str | None) -> nn.Module:
    """New towers of arguments as `TwoTowerConfig.arguments` gives them.

    Raises:
        ValidationError: pydantic's: an argument that is unknown, missing or of another type.
        InputError: one that does not fit.
    """
    given = _Arguments.model_validate(dict(arguments))
    bags = build_bags(given.tables, given.fused, device)
    return TwoTower(bags, **given.of_constructor(), dense_device=device)


class _Arguments(ModelArguments):
    user_columns: list[int]
    user_features: list[str]
    item_columns: list[int]
    item_features: list[str]
    tower_layer_sizes: list[int]
