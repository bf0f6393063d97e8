"""The tables of a collection: their modules, and the names of what they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor, nn

from embershard.errors import InputError
from embershard.modules.configs import EmbeddingBagConfig, PoolingType

__all__ = ["Table", "TableDict", "check_tables", "embedding_names"]


class Table(nn.Module):
    """The weights of one table, ``(num_embeddings, embedding_dim)``. Not called by itself."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight


class TableDict(nn.ModuleDict):
    """A ModuleDict that takes any key, also ``items`` and ``type``, which torch's refuses."""

    def __setitem__(self, key: str, module: nn.Module) -> None:
        self._modules[key] = module

    def weight(self, name: str) -> Tensor:
        """The weights of table ``name``."""
        weight = self[name].weight
        assert isinstance(weight, Tensor)
        return weight


def check_tables(tables: Sequence[EmbeddingBagConfig], *, is_weighted: bool) -> None:
    """Refuse tables that cannot stand in one collection.

    Raises:
        InputError: no tables, two of one name, or a weighted mean.
    """
    if not tables:
        raise InputError("tables: expected at least one, got none")
    name, count = Counter(table.name for table in tables).most_common(1)[0]
    if count > 1:
        raise InputError(f"tables: expected unique names, got {count} named {name!r}")
    for table in tables:
        if is_weighted and table.pooling is not PoolingType.SUM:
            raise InputError(
                f"table {table.name!r}: pooling: expected SUM in a weighted collection, "
                f"got {table.pooling.name}"
            )


def embedding_names(tables: Sequence[EmbeddingBagConfig]) -> list[str]:
    """Key of each output: the feature, or ``feature@table`` where several tables look it up.

    Returns:
        Per table in order, per its features in order.

    Raises:
        InputError: two outputs would have one key.
    """
    uses = Counter(feature for table in tables for feature in table.feature_names)
    names = [
        feature if uses[feature] == 1 else f"{feature}@{table.name}"
        for table in tables
        for feature in table.feature_names
    ]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise InputError(f"tables: expected outputs of unique names, got {count} named {name!r}")
    return names
