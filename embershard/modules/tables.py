"""The tables of a collection: their modules, and the names of their outputs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import nn

from embershard.errors import InputError
from embershard.modules.configs import DataType, EmbeddingConfig


class Table(nn.Module):
    """The weights of one table, ``(num_embeddings, embedding_dim)``. It has no forward."""

    weight: nn.Parameter

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight


_VIEWS = ("keys", "values", "items")


class TableDict(nn.Module):
    """Tables by name: ``tables["users"].weight``, or ``tables.users.weight``. A
    ``torch.nn.ModuleDict`` would refuse names like ``items`` and ``type``. Here every name works as
    a key and in a state dict, and as an attribute unless ``nn.Module`` has one of that name.
    ``keys()``, ``values()`` and ``items()`` are those of a dictionary, unless a table has the
    name."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        super().__init__()
        for name, table in tables.items():
            self._modules[name] = table

    def __getitem__(self, name: str) -> Table:
        table = self._modules[name]
        assert isinstance(table, Table)
        return table

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __len__(self) -> int:
        return len(self._modules)

    def __getattr__(self, name: str) -> Any:  # Called only if there is no such attribute.
        if name in _VIEWS and name not in self._modules:
            return getattr(self._modules, name)
        return super().__getattr__(name)


class Collection(nn.Module):
    """Base of all collections: tables in order, and a name for each output."""

    PREFIX: ClassVar[str]
    """The attribute that holds the tables: the first word of their state dict keys."""

    _configs: tuple[EmbeddingConfig, ...]
    _names: list[str]

    def reset_parameters(self) -> None:
        """Fill every table with new values, in order, by torch's default generator. The state of an
        optimizer in backward stays."""
        for table in self._configs:
            table.initialize(self._weight(table))

    def embedding_names(self) -> list[str]:
        """Keys of the outputs: the feature, or ``feature@table`` if several tables share it."""
        return list(self._names)

    def embedding_names_by_table(self) -> list[list[str]]:
        """``embedding_names()`` of each table, in order."""
        names = iter(self._names)
        return [[next(names) for _ in table.feature_names] for table in self._configs]

    @property
    def device(self) -> torch.device:
        return self._weight(self._configs[0]).device

    def _weight(self, table: EmbeddingConfig) -> nn.Parameter:
        tables: TableDict = getattr(self, self.PREFIX)
        return tables[table.name].weight


def new_weight(table: EmbeddingConfig, device: torch.device | str | None) -> nn.Parameter:
    """Weights of a table without values: float16, or torch's default dtype for FP32."""
    dtype = torch.float16 if table.data_type is DataType.FP16 else None
    size = (table.num_embeddings, table.embedding_dim)
    return nn.Parameter(torch.empty(size, device=device, dtype=dtype))


def check_tables(tables: Sequence[EmbeddingConfig]) -> None:
    """Refuse tables that cannot be in one collection."""
    if not tables:
        raise InputError("tables: expected at least one, got none")
    name, count = Counter(table.name for table in tables).most_common(1)[0]
    if count > 1:
        raise InputError(f"tables: expected unique names, got {count} named {name!r}")


def check_one_dim(tables: Sequence[EmbeddingConfig]) -> None:
    """Refuse tables of several widths."""
    dims = {table.name: table.embedding_dim for table in tables}
    if len(set(dims.values())) > 1:
        raise InputError(f"tables: expected one embedding_dim for all of them, got {dims}")


def pooled_width(tables: Sequence[EmbeddingConfig]) -> int:
    """Columns of all outputs of a collection of these tables."""
    return sum(table.embedding_dim * len(table.feature_names) for table in tables)


def embedding_names(tables: Sequence[EmbeddingConfig]) -> list[str]:
    """Keys of the outputs in order: the feature, or ``feature@table`` if several tables share
    it."""
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
