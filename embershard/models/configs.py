"""The section ``[model]`` of a run's file, a class for each model."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer
from embershard.models.arguments import (
    LAYER_MAX,
    EmbeddingDim,
    Layers,
    LogitLayers,
    Part,
    kept,
)
from embershard.models.base import ONE_SCORE, Loss
from embershard.models.own_class import check_arguments
from embershard.models.two_tower import TowerLoss
from embershard.modules import EmbeddingBagConfig
from embershard.modules.in_batch import BUCKETS_MAX
from embershard.modules.tables import embedding_names
from embershard.package.schema import Schema, Scope


def _as_tuples(value: object) -> object:
    """Convert a field that is a list of lists in TOML and JSON."""
    if not isinstance(value, list):
        return value
    return tuple(tuple(each) if isinstance(each, list) else each for each in value)


class _AnyConfig(Part, ABC):
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
        """The arguments of the constructor except tables and their optimizer."""


class _Config(_AnyConfig):
    name: str
    """The model."""

    embedding_dim: EmbeddingDim = 16
    """Columns of every table."""


class _DLRMConfig(_Config):
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


class DLRMConfig(_DLRMConfig):
    """Settings of a DLRM; the section ``[model]`` of a run's file."""

    name: Literal["dlrm"] = "dlrm"
    """The model."""


class DLRMDCNConfig(_DLRMConfig):
    """Settings of a DLRM_DCN; the section ``[model]`` of a run's file."""

    name: Literal["dlrm_dcn"] = "dlrm_dcn"
    """The model."""

    cross_layers: Annotated[int, Field(ge=1)] = 3
    """Layers of the cross network."""

    cross_rank: Annotated[int, Field(ge=1)] = 16
    """Rank of the cross network's matrices."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        return {
            **super()._of_model(tables, schema),
            "dcn_num_layers": self.cross_layers,
            "dcn_low_rank_dim": self.cross_rank,
        }


class DMTConfig(_DLRMConfig):
    """Settings of a disaggregated multi-tower; the section ``[model]`` of a run's file."""

    name: Literal["dmt"] = "dmt"
    """The model."""

    towers: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_as_tuples)] = ()
    """For each tower the names of its sparse inputs; each input stands in exactly one."""

    tower_count: Annotated[int, Field(ge=1)] = 2
    """Without ``towers``: the number of towers that share the inputs evenly, in their order."""

    tower_vectors: Annotated[int, Field(ge=1, le=LAYER_MAX)] = 2
    """Vectors that each tower's inputs are compressed to."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        features = [feature for table in tables for feature in table.feature_names]
        keys = dict[str, list[str]]()
        for feature, key in zip(features, embedding_names(tables), strict=True):
            keys.setdefault(feature, []).append(key)
        names, count = list(keys), self.tower_count
        if unknown := {name for tower in self.towers for name in tower}.difference(names):
            raise InputError(
                f"model dmt: towers: expected sparse inputs of {names}, got {sorted(unknown)}"
            )
        towers = self.towers or tuple(
            tuple(names[len(names) * tower // count : len(names) * (tower + 1) // count])
            for tower in range(count)
        )
        return {
            **super()._of_model(tables, schema),
            "towers": [[key for name in tower for key in keys[name]] for tower in towers],
            "tower_vectors": self.tower_vectors,
        }


class DeepFMConfig(_Config):
    """Settings of a DeepFM; the section ``[model]`` of a run's file."""

    name: Literal["deepfm"] = "deepfm"
    """The model."""

    over_layers: LogitLayers = (64, 32, 1)
    """Layers of the deep part; the last is 1 wide, one logit for each task."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        """Each table gets a second one, 1 wide, for the weights of first order."""
        first = [
            replace(table, name=f"{table.name}_first_order", embedding_dim=1) for table in tables
        ]
        every = [*tables, *first]
        outputs = sum(len(table.feature_names) for table in tables)
        return {
            "tables": kept(every, None)["tables"],
            "first_order_features": embedding_names(every)[outputs:],
            "dense_in_features": len(schema.dense),
            "over_arch_layer_sizes": list(self.over_layers),
        }


class MaskNetConfig(_Config):
    """Settings of a MaskNet; the section ``[model]`` of a run's file."""

    name: Literal["masknet"] = "masknet"
    """The model."""

    block_layers: Layers = (64, 64, 64)
    """Output width of each block."""

    reduction_factor: Annotated[float, Field(gt=0, le=16)] = 1.0
    """Width of a mask's hidden layer, as a multiple of the width of all features."""

    parallel: bool = True
    """true: every block reads the features. false: each block reads the block before it."""

    over_layers: LogitLayers = (64, 32, 1)
    """Layers above the blocks; the last is 1 wide, one logit for each task."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        return {
            "dense_in_features": len(schema.dense),
            "block_sizes": list(self.block_layers),
            "reduction_factor": self.reduction_factor,
            "parallel": self.parallel,
            "over_arch_layer_sizes": list(self.over_layers),
        }


class PLEConfig(_Config):
    """Settings of a PLE; the section ``[model]`` of a run's file.

    MMoE is ``levels = 1`` with ``task_experts = 0``.
    """

    name: Literal["ple"] = "ple"
    """The model."""

    levels: Annotated[int, Field(ge=1)] = 2
    """Levels of experts."""

    task_experts: Annotated[int, Field(ge=0)] = 2
    """Experts of each task and level. 0, with ``levels = 1``: the model is MMoE."""

    shared_experts: Annotated[int, Field(ge=0)] = 2
    """Experts of each level that all tasks use."""

    expert_layers: Layers = (64,)
    """Layers of each expert."""

    tower_layers: LogitLayers = (32, 1)
    """Layers of each task's tower; the last is 1 wide."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        return {
            "dense_in_features": len(schema.dense),
            "levels": self.levels,
            "task_experts": self.task_experts,
            "shared_experts": self.shared_experts,
            "expert_layer_sizes": list(self.expert_layers),
            "tower_layer_sizes": list(self.tower_layers),
        }


class _HistoryConfig(_Config):
    history: str = "history"
    """The sparse input of the user's history. Its ids are those of ``target``."""

    target: str = "item"
    """The sparse input of the candidate, one id an example. It is also looked up pooled."""

    def _of_sequences(self, tables: Sequence[EmbeddingBagConfig]) -> dict[str, Any]:
        """``history`` leaves the table it is pooled in, and shares a new one with ``target``."""
        rows = {name: _rows(self.name, tables, name) for name in (self.history, self.target)}
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
            features = [feature for feature in table.feature_names if feature != self.history]
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
        }


def _rows(model: str, tables: Sequence[EmbeddingBagConfig], feature: str) -> int:
    """Rows of the table of a sparse input."""
    for table in tables:
        if feature in table.feature_names:
            return table.num_embeddings
    known = [feature for table in tables for feature in table.feature_names]
    raise InputError(f"model {model}: expected one of the sparse inputs {known}, got {feature!r}")


class DINConfig(_HistoryConfig):
    """Settings of a DIN; the section ``[model]`` of a run's file."""

    name: Literal["din"] = "din"
    """The model."""

    attention_layers: Layers = (32,)
    """Hidden layers of the attention, at least one."""

    over_layers: LogitLayers = (64, 32, 1)
    """Layers over everything; the last is 1 wide, one logit for each task."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        return {
            **self._of_sequences(tables),
            "dense_in_features": len(schema.dense),
            "attention_layer_sizes": list(self.attention_layers),
            "over_arch_layer_sizes": list(self.over_layers),
        }


class SASRecConfig(_HistoryConfig):
    """Settings of a SASRec; the section ``[model]`` of a run's file."""

    name: Literal["sasrec"] = "sasrec"
    """The model."""

    blocks: Annotated[int, Field(ge=1)] = 2
    """Blocks of self-attention over the history, whose length is the input's ``max_ids``."""

    over_layers: LogitLayers = (64, 32, 1)
    """Layers over everything else; the last is 1 wide, one logit for each task."""

    def _of_model(self, tables: Sequence[EmbeddingBagConfig], schema: Schema) -> dict[str, Any]:
        sequences = self._of_sequences(tables)
        history_max = next(item.max_ids for item in schema.sparse if item.name == self.history)
        if not history_max:
            raise InputError(
                f"model sasrec: expected max_ids of the sparse input {self.history!r}, the number "
                "of its positions; got no limit"
            )
        return {
            **sequences,
            "history_max": history_max,
            "blocks": self.blocks,
            "dense_in_features": len(schema.dense),
            "over_arch_layer_sizes": list(self.over_layers),
        }


class TwoTowerConfig(_Config):
    """Settings of two towers; the section ``[model]`` of a run's file.

    Inputs of the request scope are the user's, those of the example scope the item's.
    """

    name: Literal["two_tower"] = "two_tower"
    """The model."""

    tower_layers: Layers = (64, 32)
    """Layers of either tower; the last is as wide as the vectors, and linear."""

    loss: TowerLoss = "bce"
    """``bce``: the task's loss, row by row. ``in_batch``: a softmax over the items of the batch for
    each row with label 1, corrected by the items' frequencies."""

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """With ``in_batch``: divides the cosine of the two vectors."""

    item: str = "item"
    """With ``in_batch``: the sparse input of the item's id, one id an example."""

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

        of_loss = dict[str, Any]()
        if self.loss == "in_batch":
            of_loss = {
                "loss": self.loss,
                "temperature": self.temperature,
                "item": self.item,
                "frequency_buckets": min(_rows(self.name, tables, self.item), BUCKETS_MAX),
            }
        return {
            **of_loss,
            "user_columns": columns("request"),
            "user_features": outputs("request"),
            "item_columns": columns("example"),
            "item_features": outputs("example"),
            "tower_layer_sizes": list(self.tower_layers),
        }


class ClassConfig(_AnyConfig):
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
