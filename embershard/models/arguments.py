"""Tables and their optimizer in a checkpoint, and collections built from them."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch

from embershard.kernels import FusedOptimizer
from embershard.models.base import Loss
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    PoolingType,
)
from embershard.modules.fused_embeddings import BagModule, SequenceModule
from embershard.sections import Section


class SequenceTableArguments(Section):
    """A table whose lookups are not pooled."""

    name: str
    num_embeddings: int
    embedding_dim: int
    feature_names: list[str]


class TableArguments(SequenceTableArguments):
    """A table whose lookups are pooled."""

    pooling: Literal["sum", "mean"] = "sum"


class FusedArguments(Section):
    """The optimizer of tables that train in backward."""

    optimizer: str
    learning_rate: float
    eps: float = 1e-8


class ModelArguments(Section):
    """A model in a checkpoint; a subclass adds the arguments of the model's constructor."""

    tables: list[TableArguments]
    fused: FusedArguments | None = None
    tasks: dict[str, Loss] | None = None
    """The loss of each task. Older checkpoints have None, which stands for one task ``score``."""

    def constructor_arguments(self) -> dict[str, Any]:
        """All arguments except the tables, by the names of the constructor's arguments."""
        return self.model_dump(exclude={"tables", "sequence_tables", "fused"})


def table_arguments(
    tables: Iterable[EmbeddingBagConfig], fused: FusedOptimizer | None
) -> dict[str, Any]:
    """Tables and their optimizer in backward, as JSON's types. The initial values of rows are left
    out, since a checkpoint has the rows."""
    return {
        "tables": [
            {
                "name": table.name,
                "num_embeddings": table.num_embeddings,
                "embedding_dim": table.embedding_dim,
                "feature_names": list(table.feature_names),
                "pooling": table.pooling.name.lower(),
            }
            for table in tables
        ],
        "fused": None
        if fused is None
        else {"optimizer": fused.name, "learning_rate": fused.learning_rate, "eps": fused.eps},
    }


def build_bags(
    tables: Sequence[TableArguments],
    fused: FusedArguments | None,
    device: torch.device | str | None,
) -> BagModule:
    """A new collection of pooled tables. Raises `InputError` for tables or an optimizer that cannot
    be used."""
    configs = [
        EmbeddingBagConfig(
            name=table.name,
            num_embeddings=table.num_embeddings,
            embedding_dim=table.embedding_dim,
            feature_names=table.feature_names,
            pooling=PoolingType[table.pooling.upper()],
        )
        for table in tables
    ]
    if fused is None:
        return EmbeddingBagCollection(configs, device=device)
    return FusedEmbeddingBagCollection(configs, device=device, **fused.model_dump())


def build_sequences(
    tables: Sequence[SequenceTableArguments],
    fused: FusedArguments | None,
    device: torch.device | str | None,
) -> SequenceModule:
    configs = [EmbeddingConfig(**table.model_dump()) for table in tables]
    if fused is None:
        return EmbeddingCollection(configs, device=device)
    return FusedEmbeddingCollection(configs, device=device, **fused.model_dump())
