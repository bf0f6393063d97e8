"""Models by name, built from arguments that JSON can hold, as a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import nn

from embershard.errors import InputError
from embershard.models.dlrm import DLRM
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
)

__all__ = ["build_model", "model_names"]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Table(_Arguments):
    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: list[str]
    pooling: Literal["sum", "mean"] = "sum"


class _Fused(_Arguments):
    optimizer: str
    learning_rate: float
    eps: float = 1e-8


class _DLRMArguments(_Arguments):
    tables: list[_Table]
    dense_in_features: int
    dense_arch_layer_sizes: list[int]
    over_arch_layer_sizes: list[int]
    fused: _Fused | None = None


def build_model(
    name: str, arguments: Mapping[str, Any], *, device: torch.device | str | None = None
) -> nn.Module:
    """Build a new model, its weights drawn with torch's default generator.

    Args:
        name: one of ``model_names()``.
        arguments: what its constructor needs, as JSON's types. Of ``dlrm``: ``tables`` (each
            ``name``, ``num_embeddings``, ``embedding_dim``, ``feature_names``, and ``pooling``
            "sum" or "mean"), ``dense_in_features``, ``dense_arch_layer_sizes``,
            ``over_arch_layer_sizes``, and ``fused``: null for plain tables, or ``optimizer``,
            ``learning_rate`` and ``eps`` of tables that train in backward.
        device: where the model lies. None: torch's default for plain tables, cpu for fused.

    Raises:
        InputError: an unknown name or argument, a missing one, or one that does not fit.
    """
    if name not in _BUILDERS:
        raise InputError(f"model: expected one of {', '.join(_BUILDERS)}; got {name!r}")
    try:
        return _BUILDERS[name](arguments, device)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"model {name!r}: argument {where!r}: {first['msg']}; got {first['input']!r}"
        ) from None


def model_names() -> list[str]:
    """Every name that ``build_model`` knows."""
    return list(_BUILDERS)


def _build_dlrm(arguments: Mapping[str, Any], device: torch.device | str | None) -> nn.Module:
    given = _DLRMArguments.model_validate(dict(arguments))
    tables = [
        EmbeddingBagConfig(
            name=table.name,
            num_embeddings=table.num_embeddings,
            embedding_dim=table.embedding_dim,
            feature_names=table.feature_names,
            pooling=PoolingType[table.pooling.upper()],
        )
        for table in given.tables
    ]
    embeddings: EmbeddingBagCollection | FusedEmbeddingBagCollection
    if given.fused is None:
        embeddings = EmbeddingBagCollection(tables, device=device)
    else:
        embeddings = FusedEmbeddingBagCollection(tables, device=device, **given.fused.model_dump())
    return DLRM(
        embedding_bag_collection=embeddings,
        dense_in_features=given.dense_in_features,
        dense_arch_layer_sizes=given.dense_arch_layer_sizes,
        over_arch_layer_sizes=given.over_arch_layer_sizes,
        dense_device=device,
    )


_BUILDERS = MappingProxyType({"dlrm": _build_dlrm})
