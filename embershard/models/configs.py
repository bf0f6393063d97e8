"""Models in words: as a run's file asks for each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer
from embershard.models.arguments import EmbeddingDim, Layers, Part, kept
from embershard.models.base import ONE_SCORE, Loss
from embershard.models.own_class import check_arguments
from embershard.modules import EmbeddingBagConfig
from embershard.modules.tables import embedding_names
from embershard.package.schema import Schema, Scope


class _Config(Part, ABC):
    def arguments(
        self,
        tables: Sequence[EmbeddingBagConfig],
        *,
        schema: Schema,
        fused: FusedOptimizer | None,
        tasks: Mapping[str, Loss] = ONE_SCORE,
    ) -> dict[str, Any]:
        """The arguments for ``build_model``, as JSON's types.

        Args:
            tables: of ``embedding_dim``.
            schema: of the inputs.
            fused: how tables train in backward. None: plain tables.
            tasks: the loss of each task, by the name of its output.

        Raises:
            InputError: tables or inputs that the model cannot have.
        """
        found = {**kept(tables, fused), **self._of_model(tables, schema)}
        if tasks != ONE_SCORE:
            found["tasks"] = dict(tasks)
        if "over_arch_layer_sizes" in found:
            found["over_arch_layer_sizes"][-1] = len(tasks)
        return found

    @abstractmethod
    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        """All but the tables' own, by the names of the constructor's arguments."""


class DLRMConfig(_Config):
    """What a person chooses of a DLRM; the section ``[model]`` of a run's file."""

    name: Literal["dlrm"] = "dlrm"
    """The model."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""

    dense_layers: Layers = (32, 16)
    """Layers over the dense inputs; the last is as wide as ``embedding_dim``."""

    over_layers: Layers = (64, 32, 1)
    """Layers over the interactions, at least two; the last is 1 wide, one logit for each task."""

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

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        return {
            "dense_in_features": len(schema.dense),
            "dense_arch_layer_sizes": list(self.dense_layers),
            "over_arch_layer_sizes": list(self.over_layers),
        }


class DINConfig(_Config):
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
    """Layers over everything; the last is 1 wide, one logit for each task."""

    @field_validator("over_layers")
    @classmethod
    def _ends_in_a_score(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if layers[-1:] != (1,):
            raise ValueError("expected a last layer 1 wide")
        return layers

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        """``history`` leaves the table it is pooled in, and shares a new one with ``target``."""
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
        return {
            "tables": kept(pooled, None)["tables"],
            "sequence_tables": [
                {
                    "name": shared,
                    "num_embeddings": rows[self.target],
                    "embedding_dim": self.embedding_dim,
                    "feature_names": [self.history, self.target],
                }
            ],
            "history": self.history,
            "target": self.target,
            "dense_in_features": len(schema.dense),
            "attention_layer_sizes": list(self.attention_layers),
            "over_arch_layer_sizes": list(self.over_layers),
        }


class TwoTowerConfig(_Config):
    """What a person chooses of two towers; the section ``[model]`` of a run's file.

    Inputs of the request scope are the user's, those of the example scope the item's.
    """

    name: Literal["two_tower"] = "two_tower"
    """The model."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""

    tower_layers: Layers = (64, 32)
    """Layers of either tower; the last is as wide as the vectors, and linear."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        """The schema's scopes tell the towers' inputs."""
        scopes = {item.name: item.scope for item in schema.sparse}
        features = [feature for table in tables for feature in table.feature_names]
        keys = embedding_names(tables)

        def columns(scope: Scope) -> list[int]:
            return [place for place, item in enumerate(schema.dense) if item.scope == scope]

        def outputs(scope: Scope) -> list[str]:
            found = zip(features, keys, strict=True)
            return [key for feature, key in found if scopes[feature] == scope]

        return {
            "user_columns": columns("request"),
            "user_features": outputs("request"),
            "item_columns": columns("example"),
            "item_features": outputs("example"),
            "tower_layer_sizes": list(self.tower_layers),
        }


class ClassConfig(_Config):
    """The section ``[model]`` of a model of one's own class."""

    model_config = ConfigDict(extra="allow")

    class_: Annotated[str, Field(alias="class")]
    """``package.module:Class``; the current folder is importable. All other keys are arguments of
    its constructor. [Your own class](models.md#your-own-class) says what it has to be."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_name(cls, section: Any) -> Any:
        if isinstance(section, dict) and "name" in section:
            raise ValueError("expected 'name' or 'class', got both")
        return section

    @property
    def name(self) -> str:
        """The model's name in a checkpoint."""
        return self.class_

    def check(self) -> None:
        """Import the class and check its arguments; raises OwnClassError."""
        check_arguments(self.class_, self.model_extra or {})

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        return {"arguments": dict(self.model_extra or {})}


def _rows(tables: Sequence[EmbeddingBagConfig], feature: str) -> int:
    for table in tables:
        if feature in table.feature_names:
            return table.num_embeddings
    known = [feature for table in tables for feature in table.feature_names]
    raise InputError(f"model din: expected one of the sparse inputs {known}, got {feature!r}")
