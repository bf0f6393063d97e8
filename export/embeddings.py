"""What a module looks up: its tables, and where each pooled vector lies.

The vectors of one scope stand side by side in one matrix, in the order of the schema's sparse
inputs and, for an input of several tables, of the tables:

    request_pooled [R, P_r]    user | history | …
    example_pooled [B, P_e]    item | genres | …
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.modules import EmbeddingBagCollection, FusedEmbeddingBagCollection, PoolingType
from embershard.package.manifest import Lookup
from embershard.package.names import NAME_PATTERN, PATTERN_WORDS
from embershard.package.schema import Schema, Scope, SparseInput

__all__ = [
    "EMBEDDING_MODULES",
    "Columns",
    "EmbeddingModule",
    "PooledLayout",
    "PooledLookup",
    "lay_out",
]

EmbeddingModule: TypeAlias = EmbeddingBagCollection | FusedEmbeddingBagCollection
EMBEDDING_MODULES = (EmbeddingBagCollection, FusedEmbeddingBagCollection)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where one pooled vector lies: columns ``start .. start + width`` of its scope's matrix."""

    scope: Scope
    start: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledLookup:
    """One sparse input, looked up in one table."""

    input: SparseInput

    path: str
    """Of the embedding module."""

    key: str
    """Of the module's output."""

    lookup: Lookup
    columns: Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledLayout:
    """Tables and lookups of a module, and the layout of its pooled vectors."""

    tables: Mapping[str, Tensor]
    """By name, float32 ``(rows, dim)``: the module's own, no copy."""

    lookups: tuple[PooledLookup, ...]
    """In the order of their columns."""

    def of_input(self, name: str) -> tuple[Lookup, ...]:
        """The lookups of one sparse input."""
        return tuple(each.lookup for each in self.lookups if each.input.name == name)

    def columns(self, path: str, key: str) -> Columns:
        """Where an output of an embedding module lies."""
        return next(e.columns for e in self.lookups if (e.path, e.key) == (path, key))

    def rows(self, item: SparseInput) -> int:
        """Rows of the tables that an input is looked up in."""
        return len(self.tables[self.of_input(item.name)[0].table])


def lay_out(modules: Mapping[str, EmbeddingModule], schema: Schema) -> PooledLayout:
    """Decide where every pooled vector lies.

    Args:
        modules: embedding modules by path.
        schema: the inputs; every one of its sparse inputs is looked up.

    Raises:
        ExportError: a feature that the schema lacks, a sparse input that no table looks up, a
            table name that is used twice or no file may have, or weights or rows that module and
            schema do not agree on.
    """
    tables: dict[str, Tensor] = {}
    for path, module in modules.items():
        for name, weight in _weights(module).items():
            if not re.fullmatch(NAME_PATTERN, name):
                raise ExportError(
                    f"{path}: table {name!r}: expected a name of {PATTERN_WORDS[NAME_PATTERN]}"
                )
            if name in tables:
                raise ExportError(
                    f"{path}: table {name!r}: expected a name used once, got it twice"
                )
            tables[name] = weight
    found = [(path, *output) for path, module in modules.items() for output in _outputs(module)]
    inputs = {item.name: item for item in schema.sparse}
    for path, _, feature, _, _ in found:
        _check_input(path, modules[path], feature, inputs)
    unused = [name for name in inputs if all(name != feature for _, _, feature, _, _ in found)]
    if unused:
        raise ExportError(f"sparse inputs {unused}: expected a table that looks them up, got none")

    lookups: list[PooledLookup] = []
    ends: dict[Scope, int] = {"request": 0, "example": 0}
    for item in schema.sparse:
        for path, key, feature, lookup, dim in found:
            if feature == item.name:
                columns = Columns(item.scope, ends[item.scope], dim)
                ends[item.scope] += dim
                lookups.append(
                    PooledLookup(input=item, path=path, key=key, lookup=lookup, columns=columns)
                )
    layout = PooledLayout(tables=tables, lookups=tuple(lookups))
    _check_rows(layout)
    return layout


def _weights(module: nn.Module) -> dict[str, Tensor]:
    state = module.state_dict()
    return {
        key.removeprefix("embedding_bags.").removesuffix(".weight"): state[key] for key in state
    }


def _outputs(module: EmbeddingModule) -> list[tuple[str, str, Lookup, int]]:
    """Of each output of the module: key, feature, lookup, width."""
    keys = iter(module.embedding_names())
    return [
        (
            next(keys),
            feature,
            Lookup(
                table=config.name,
                output="pooled",
                pooling="mean" if config.pooling is PoolingType.MEAN else "sum",
            ),
            config.embedding_dim,
        )
        for config in module.embedding_bag_configs()
        for feature in config.feature_names
    ]


def _check_input(
    path: str, module: EmbeddingModule, feature: str, inputs: Mapping[str, SparseInput]
) -> None:
    where = f"{path}: feature {feature!r}"
    if feature not in inputs:
        raise ExportError(f"{where}: expected one of the schema's sparse inputs {list(inputs)}")
    if inputs[feature].weighted != module.is_weighted():
        raise ExportError(
            f"{where}: expected weighted={module.is_weighted()} in the schema as in the module, "
            f"got weighted={inputs[feature].weighted}"
        )


def _check_rows(layout: PooledLayout) -> None:
    """Every table of an input has the rows that its id map gives, or as many as its others."""
    for each in layout.lookups:
        ids = each.input.ids
        expected = layout.rows(each.input) if ids is None else ids.num_rows
        rows = len(layout.tables[each.lookup.table])
        if rows != expected:
            source = "the input's first table" if ids is None else "its id map"
            raise ExportError(
                f"feature {each.input.name!r}: table {each.lookup.table!r}: expected {expected} "
                f"rows as {source} has, got {rows}"
            )
