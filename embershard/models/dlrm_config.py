"""DLRM in words: as a run's file asks for it, and as a checkpoint rebuilds it. With it DLRM_DCN,
whose arguments are a few more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from torch import nn

from embershard.kernels import FusedOptimizer
from embershard.models.dlrm import DLRM
from embershard.models.dlrm_dcn import DLRM_DCN
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
)

__all__ = ["DLRMConfig", "build_dlrm", "build_dlrm_dcn"]

Positive = Annotated[int, Field(ge=1)]


class DLRMConfig(BaseModel):
    """What a person chooses of a DLRM; the section ``[model]`` of a run's file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_default=True)

    name: Literal["dlrm"] = "dlrm"

    embedding_dim: Annotated[int, Field(ge=4, multiple_of=4)] = 16
    """Of every table; a multiple of 4."""

    dense_layers: tuple[Positive, ...] = (32, 16)
    """Layers over the dense inputs; the last is as wide as ``embedding_dim``."""

    over_layers: tuple[Positive, ...] = (64, 32, 1)
    """Layers over the interactions, at least two; the last is 1 wide."""

    @field_validator("dense_layers", "over_layers", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("dense_layers")
    @classmethod
    def _ends_in_the_embeddings(
        cls, layers: tuple[int, ...], info: ValidationInfo
    ) -> tuple[int, ...]:
        dim = info.data.get("embedding_dim")  # Not there if it was refused itself.
        if dim is not None and layers[-1:] != (dim,):
            raise ValueError(f"expected a last layer {dim} wide, as embedding_dim is")
        return layers

    @field_validator("over_layers")
    @classmethod
    def _ends_in_a_score(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if len(layers) < 2 or layers[-1] != 1:
            raise ValueError("expected at least two layers, the last 1 wide")
        return layers

    def arguments(
        self,
        tables: Sequence[EmbeddingBagConfig],
        *,
        dense_in_features: int,
        fused: FusedOptimizer | None,
    ) -> dict[str, Any]:
        """The arguments for ``build_model``, as JSON's types.

        Args:
            tables: of ``embedding_dim``. How their rows begin is not kept: a checkpoint has them.
            dense_in_features: dense inputs, at least 1.
            fused: how tables train in backward. None: plain tables.
        """
        document = _Arguments(
            tables=[
                _Table(
                    name=table.name,
                    num_embeddings=table.num_embeddings,
                    embedding_dim=table.embedding_dim,
                    feature_names=list(table.feature_names),
                    pooling="mean" if table.pooling is PoolingType.MEAN else "sum",
                )
                for table in tables
            ],
            dense_in_features=dense_in_features,
            dense_arch_layer_sizes=list(self.dense_layers),
            over_arch_layer_sizes=list(self.over_layers),
            fused=None
            if fused is None
            else _Fused(optimizer=fused.name, learning_rate=fused.learning_rate, eps=fused.eps),
        )
        return document.model_dump()


def build_dlrm(arguments: Mapping[str, Any], device: torch.device | str | None) -> nn.Module:
    """A new DLRM of arguments as `DLRMConfig.arguments` gives them.

    Raises:
        ValidationError: pydantic's: an argument that is unknown, missing or of another type.
        InputError: one that does not fit.
    """
    given = _Arguments.model_validate(dict(arguments))
    return DLRM(
        embedding_bag_collection=_embeddings(given, device),
        dense_in_features=given.dense_in_features,
        dense_arch_layer_sizes=given.dense_arch_layer_sizes,
        over_arch_layer_sizes=given.over_arch_layer_sizes,
        dense_device=device,
    )


def build_dlrm_dcn(arguments: Mapping[str, Any], device: torch.device | str | None) -> nn.Module:
    """A new DLRM_DCN: of a DLRM's arguments, ``dcn_num_layers`` and ``dcn_low_rank_dim``.

    Raises:
        ValidationError: pydantic's: an argument that is unknown, missing or of another type.
        InputError: one that does not fit.
    """
    given = _DCNArguments.model_validate(dict(arguments))
    return DLRM_DCN(
        embedding_bag_collection=_embeddings(given, device),
        dense_in_features=given.dense_in_features,
        dense_arch_layer_sizes=given.dense_arch_layer_sizes,
        over_arch_layer_sizes=given.over_arch_layer_sizes,
        dcn_num_layers=given.dcn_num_layers,
        dcn_low_rank_dim=given.dcn_low_rank_dim,
        dense_device=device,
    )


def _embeddings(
    given: _Arguments, device: torch.device | str | None
) -> EmbeddingBagCollection | FusedEmbeddingBagCollection:
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
    if given.fused is None:
        return EmbeddingBagCollection(tables, device=device)
    return FusedEmbeddingBagCollection(tables, device=device, **given.fused.model_dump())


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Table(_Part):
    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: list[str]
    pooling: Literal["sum", "mean"] = "sum"


class _Fused(_Part):
    optimizer: str
    learning_rate: float
    eps: float = 1e-8


class _Arguments(_Part):
    tables: list[_Table]
    dense_in_features: int
    dense_arch_layer_sizes: list[int]
    over_arch_layer_sizes: list[int]
    fused: _Fused | None = None


class _DCNArguments(_Arguments):
    dcn_num_layers: int
    dcn_low_rank_dim: int
