"""DLRM in words: as a run's file asks for it, and as a checkpoint rebuilds it. With it DLRM_DCN,
whose arguments are a few more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import ValidationInfo, field_validator
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
from embershard.models.dlrm import DLRM
from embershard.models.dlrm_dcn import DLRM_DCN
from embershard.modules import EmbeddingBagConfig
from embershard.package.schema import Schema


class DLRMConfig(Part):
    """What a person chooses of a DLRM; the section ``[model]`` of a run's file."""

    name: Literal["dlrm"] = "dlrm"
    """The model."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""

    dense_layers: Layers = (32, 16)
    """Layers over the dense inputs; the last is as wide as ``embedding_dim``."""

    over_layers: Layers = (64, 32, 1)
    """Layers over the interactions, at least two; the last is 1 wide."""

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
        schema: Schema,
        fused: FusedOptimizer | None,
    ) -> dict[str, Any]:
        """The arguments for ``build_model``, as JSON's types.

        Args:
            tables: of ``embedding_dim``.
            schema: with at least one dense input.
            fused: how tables train in backward. None: plain tables.
        """
        document = _Arguments(
            tables=table_arguments(tables),
            dense_in_features=len(schema.dense),
            dense_arch_layer_sizes=list(self.dense_layers),
            over_arch_layer_sizes=list(self.over_layers),
            fused=fused_arguments(fused),
        )
        return document.model_dump()


def build_dlrm(arguments: Mapping[str, Any], device: torch.device | str | None) -> nn.Module:
    """A new DLRM of arguments as `DLRMConfig.arguments` gives them.

    Raises:
        ValidationError: pydantic's: an argument that is unknown, missing or of another type.
        InputError: one that does not fit.
    """
    given = _Arguments.model_validate(dict(arguments))
    bags = build_bags(given.tables, given.fused, device)
    return DLRM(bags, **given.of_constructor(), dense_device=device)


def build_dlrm_dcn(arguments: Mapping[str, Any], device: torch.device | str | None) -> nn.Module:
    """A new DLRM_DCN: of a DLRM's arguments, ``dcn_num_layers`` and ``dcn_low_rank_dim``.

    Raises:
        ValidationError: pydantic's: an argument that is unknown, missing or of another type.
        InputError: one that does not fit.
    """
    given = _DCNArguments.model_validate(dict(arguments))
    bags = build_bags(given.tables, given.fused, device)
    return DLRM_DCN(bags, **given.of_constructor(), dense_device=device)


class _Arguments(ModelArguments):
    dense_in_features: int
    dense_arch_layer_sizes: list[int]
    over_arch_layer_sizes: list[int]


class _DCNArguments(_Arguments):
    dcn_num_layers: int
    dcn_low_rank_dim: int
