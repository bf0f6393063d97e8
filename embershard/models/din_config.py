"""DIN in words: as a run's file asks for it, and as a checkpoint rebuilds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import field_validator
from torch import nn

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer
from embershard.models.arguments import (
    EmbeddingDim,
    Layers,
    ModelArguments,
    Part,
    SequenceTableArguments,
    build_bags,
    build_sequences,
    fused_arguments,
    table_arguments,
)
from embershard.models.din import DIN
from embershard.modules import EmbeddingBagConfig
from embershard.package.schema import Schema


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
        """The arguments for ``build_model``, as JSON's types.

        ``history`` leaves the table it is pooled in, and shares a new one with ``target``.

        Args:
            tables: of ``embedding_dim``.
            schema: with at least one dense input.
            fused: how tables train in backward. None: plain tables.

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
        document = _Arguments(
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


def build_din(arguments: Mapping[str, Any], device: torch.device | str | None) -> nn.Module:
    """A new DIN of arguments as `DINConfig.arguments` gives them.

    Raises:
        ValidationError: pydantic's: an argument that is unknown, missing or of another type.
        InputError: one that does not fit.
    """
    given = _Arguments.model_validate(dict(arguments))
    bags = build_bags(given.tables, given.fused, device)
    sequences = build_sequences(given.sequence_tables, given.fused, device)
    return DIN(bags, sequences, **given.of_constructor(), dense_device=device)


class _Arguments(ModelArguments):
    sequence_tables: list[SequenceTableArguments]
    history: str
    target: str
    dense_in_features: int
    attention_layer_sizes: list[int]
    over_arch_layer_sizes: list[int]


def _rows(tables: Sequence[EmbeddingBagConfig], feature: str) -> int:
    for table in tables:
        if feature in table.feature_names:
            return table.num_embeddings
    known = [feature for table in tables for feature in table.feature_names]
    raise InputError(f"model din: expected one of the sparse inputs {known}, got {feature!r}")
