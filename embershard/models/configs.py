"""Models in words: as a run's file asks for each, and as a checkpoint rebuilds it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import ValidationInfo, field_validator

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer
from embershard.models.arguments import (
    EmbeddingDim,
    Layers,
    ModelArguments,
    Part,
    SequenceTableArguments,
    fused_arguments,
    table_arguments,
)
from embershard.modules import EmbeddingBagConfig
from embershard.modules.tables import embedding_names
from embershard.package.schema import Schema, Scope


class DLRMArguments(ModelArguments):
    """Of a DLRM."""

    dense_in_features: int
    dense_arch_layer_sizes: list[int]
    over_arch_layer_sizes: list[int]


class DCNArguments(DLRMArguments):
    """Of a DLRM_DCN."""

    dcn_num_layers: int
    dcn_low_rank_dim: int


class DINArguments(ModelArguments):
    """Of a DIN."""

    sequence_tables: list[SequenceTableArguments]
    history: str
    target: str
    dense_in_features: int
    attention_layer_sizes: list[int]
    over_arch_layer_sizes: list[int]


class TwoTowerArguments(ModelArguments):
    """Of two towers."""

    user_columns: list[int]
    user_features: list[str]
    item_columns: list[int]
    item_features: list[str]
    tower_layer_sizes: list[int]


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
        document = DLRMArguments(
            tables=table_arguments(tables),
            dense_in_features=len(schema.dense),
            dense_arch_layer_sizes=list(self.dense_layers),
            over_arch_layer_sizes=list(self.over_layers),
            fused=fused_arguments(fused),
        )
        return document.model_dump()


class DINConfig(Part):
    """What a person chooses of a DIN; the section ``[model]`` of a run's file."""

    name: Literal["din"] = "din"
    """The model."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""

    history: str = "history"
    """The sparse input that is attended to: its ids are those of ``target``."""

    target: str = "item"
    """The sparse input that attends: one id an example. It is looked up once more, pooled."""

    attention_layers: Layers = (32,)
    """Hidden layers of the attention, at least one."""

    over_layers: Layers = (64, 32, 1)
    """Layers over everything; the last is 1 wide."""

    @field_validator("over_layers")
    @classmethod
    def _ends_in_a_score(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if layers[-1:] != (1,):
            raise ValueError("expected a last layer 1 wide")
        return layers

    def arguments(
        self,
        tables: Sequence[EmbeddingBagConfig],
        *,
        schema: Schema,
        fused: FusedOptimizer | None,
    ) -> dict[str, Any]:
        """As ``DLRMConfig.arguments``. ``history`` leaves the table it is pooled in, and shares a
        new one with ``target``.

        Raises:
            InputError: no tables look up ``history`` and ``target``, tables of several sizes, or a
                table of the name that the new one gets.
        """
        rows = {name: _rows(tables, name) for name in (self.history, self.target)}
        if len(set(rows.values())) > 1:
            raise InputError(
                f"history and target: expected ids of one kind, got tables of {rows} rows"
            )
        shared = f"{self.target}_sequence"
        if any(table.name == shared for table in tables):
            raise InputError(
                f"table {shared!r}: expected another name, this is the table that history and "
                "target share"
            )
        pooled = []
        for table in tables:
            features = [each for each in table.feature_names if each != self.history]
            if features:
                pooled.append(replace(table, feature_names=features))
        document = DINArguments(
            tables=table_arguments(pooled),
            sequence_tables=[
                SequenceTableArguments(
                    name=shared,
                    num_embeddings=rows[self.target],
                    embedding_dim=self.embedding_dim,
                    feature_names=[self.history, self.target],
                )
            ],
            history=self.history,
            target=self.target,
            dense_in_features=len(schema.dense),
            attention_layer_sizes=list(self.attention_layers),
            over_arch_layer_sizes=list(self.over_layers),
            fused=fused_arguments(fused),
        )
        return document.model_dump()


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
        """As ``DLRMConfig.arguments``; the schema's scopes tell the towers' inputs."""
        scopes = {item.name: item.scope for item in schema.sparse}
        features = [feature for table in tables for feature in table.feature_names]
        keys = embedding_names(tables)

        def columns(scope: Scope) -> list[int]:
            return [place for place, item in enumerate(schema.dense) if item.scope == scope]

        def outputs(scope: Scope) -> list[str]:
            found = zip(features, keys, strict=True)
            return [key for feature, key in found if scopes[feature] == scope]

        document = TwoTowerArguments(
            tables=table_arguments(tables),
            user_columns=columns("request"),
            user_features=outputs("request"),
            item_columns=columns("example"),
            item_features=outputs("example"),
            tower_layer_sizes=list(self.tower_layers),
            fused=fused_arguments(fused),
        )
        return document.model_dump()


def _rows(tables: Sequence[EmbeddingBagConfig], feature: str) -> int:
    for table in tables:
        if feature in table.feature_names:
            return table.num_embeddings
    known = [feature for table in tables for feature in table.feature_names]
    raise InputError(f"model din: expected one of the sparse inputs {known}, got {feature!r}")
