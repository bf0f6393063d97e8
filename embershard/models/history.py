"""Models over a user's history and a candidate: what DIN and SASRec share."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from embershard.models.arguments import table_arguments
from embershard.models.base import LogitModel, Loss, check_logits
from embershard.models.base_config import NamedConfig, table_rows
from embershard.modules import (
    EmbeddingBagConfig,
)
from embershard.modules.fused_embeddings import BagModule, SequenceModule
from embershard.modules.tables import pooled_width


class HistoryModel(LogitModel):
    """Base of models that look up ``history`` and ``target`` id by id, other features pooled. For
    arguments see `DIN`. Raises InputError if the last of ``over_arch_layer_sizes`` is not the
    number of tasks, or the collection lacks a sequence."""

    def __init__(
        self,
        embedding_bag_collection: BagModule,
        embedding_collection: SequenceModule,
        history: str,
        target: str,
        over_arch_layer_sizes: Sequence[int],
        tasks: Mapping[str, Loss] | None,
    ) -> None:
        super().__init__(tasks)
        check_logits(over_arch_layer_sizes, self.tasks)
        sequences = embedding_collection.embedding_names()
        for role, name in (("history", history), ("target", target)):
            if name not in sequences:
                raise InputError(f"{role}: expected one of the sequences {sequences}, got {name!r}")
        self.embedding_bag_collection = embedding_bag_collection
        self.embedding_collection = embedding_collection
        self.history, self.target = history, target
        self.dim = embedding_collection.embedding_configs()[0].embedding_dim
        self.pooled_width = pooled_width(embedding_bag_collection.embedding_bag_configs())

    def look_up(self, sparse_features: KeyedJaggedTensor) -> tuple[Tensor, JaggedTensor, Tensor]:
        """Pooled features ``(B, pooled_width)``, the history, and the target ``(B, dim)``."""
        pooled = self.embedding_bag_collection(sparse_features).values()
        sequences = self.embedding_collection(sparse_features)
        target = sequences[self.target].to_padded_dense(1).squeeze(1)
        return pooled, sequences[self.history], target


class HistoryConfig(NamedConfig):
    """Settings of a `HistoryModel`."""

    history: str = "history"
    """The sparse input of the user's history. Its ids are those of ``target``."""

    target: str = "item"
    """The sparse input of the candidate, one id an example. It is also looked up pooled."""

    def sequence_arguments(self, tables: Sequence[EmbeddingBagConfig]) -> dict[str, Any]:
        """``history`` leaves the table it is pooled in, and shares a new one with ``target``."""
        rows = {name: table_rows(self.name, tables, name) for name in (self.history, self.target)}
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
            "tables": table_arguments(pooled, None)["tables"],
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
