"""What a module looks up: its tables, and where each pooled vector and each sequence lies.

The vectors of one scope stand side by side in one matrix, in the order of the schema's sparse
inputs and, for an input of several tables, of the tables:

    request_pooled [R, P_r]    user | history | …
    example_pooled [B, P_e]    item | genres | …

What is looked up without pooling is a sequence: the vectors of all lists, and where each list
begins. The sequences of one scope are numbered in the same order:

    request_sequences          history: values [T, dim], offsets [R + 1] | …
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.modules import (
    DataType,
    EmbeddingBagCollection,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    PoolingType,
)
from embershard.package.manifest_inputs import Lookup
from embershard.package.schema import Schema, Scope, SparseInput

__all__ = [
    "EMBEDDING_MODULES",
    "Columns",
    "EmbeddingModule",
    "Layout",
    "Place",
    "PooledLookup",
    "SequenceLookup",
    "gives_sequences",
    "half_tables",
    "lay_out",
]

BagModule: TypeAlias = EmbeddingBagCollection | FusedEmbeddingBagCollection
SequenceModule: TypeAlias = EmbeddingCollection | FusedEmbeddingCollection
EmbeddingModule: TypeAlias = BagModule | SequenceModule
BAG_MODULES = (EmbeddingBagCollection, FusedEmbeddingBagCollection)
SEQUENCE_MODULES = (EmbeddingCollection, FusedEmbeddingCollection)
EMBEDDING_MODULES = (*BAG_MODULES, *SEQUENCE_MODULES)


@dataclass(frozen=True, slots=True)
class Columns:
    """Where one pooled vector lies: columns ``start .. start + width`` of its scope's matrix."""

    scope: Scope
    start: int
    width: int


@dataclass(frozen=True, slots=True)
class Place:
    """Which of its scope's sequences one is, counted from 0, and the width of its vectors."""

    scope: Scope
    number: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledLookup:
    """One sparse input, looked up and pooled in one table."""

    input: SparseInput

    path: str
    """Of the embedding module."""

    key: str
    """Of the module's output."""

    lookup: Lookup
    columns: Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceLookup:
    """One sparse input, looked up in one table without pooling."""

    input: SparseInput

    path: str
    """Of the embedding module."""

    key: str
    """Of the module's output."""

    lookup: Lookup
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Tables and lookups of a module, and where what they give lies."""

    tables: Mapping[str, Tensor]
    """By name, float32 ``(rows, dim)``: the module's own, no copy but of FP16 tables."""

    pooled: tuple[PooledLookup, ...]
    """In the order of their columns."""

    sequences: tuple[SequenceLookup, ...]
    """In the order of their numbers, those of both scopes."""

    def every(self) -> list[PooledLookup | SequenceLookup]:
        """All lookups, the pooled ones first."""
        return [*self.pooled, *self.sequences]

    def of_input(self, name: str) -> tuple[Lookup, ...]:
        """The lookups of one sparse input, the pooled ones first."""
        return tuple(each.lookup for each in self.every() if each.input.name == name)

    def columns(self, path: str, key: str) -> Columns:
        """Where a pooled output of an embedding module lies."""
        return next(e.columns for e in self.pooled if (e.path, e.key) == (path, key))

    def sequence(self, path: str, key: str) -> SequenceLookup:
        """An output that is a sequence."""
        return next(e for e in self.sequences if (e.path, e.key) == (path, key))

    def rows(self, item: SparseInput) -> int:
        """Rows of the tables that an input is looked up in."""
        return len(self.tables[self.of_input(item.name)[0].table])


def gives_sequences(module: EmbeddingModule) -> bool:
    """Whether its outputs are not pooled."""
    return isinstance(module, SEQUENCE_MODULES)


def lay_out(modules: Mapping[str, EmbeddingModule], schema: Schema) -> Layout:
    """Decide where every pooled vector and every sequence lies.

    Args:
        modules: embedding modules by path.
        schema: the inputs; every one of its sparse inputs is looked up.

    Raises:
        ExportError: a feature that the schema lacks, a sparse input that no table looks up, a
            table name that is used twice, or weights or rows that module and schema do not agree
            on.
    """
    tables: dict[str, Tensor] = {}
    for path, module in modules.items():
        for name, weight in _weights(module).items():
            if name in tables:
                raise ExportError(
                    f"{path}: table {name!r}: expected a name used once, got it twice"
                )
            tables[name] = weight
    found = [output for path, module in modules.items() for output in _outputs(path, module)]
    inputs = {item.name: item for item in schema.sparse}
    for each in found:
        _check_input(each.path, modules[each.path], each.feature, inputs)
    unused = [name for name in inputs if all(name != each.feature for each in found)]
    if unused:
        raise ExportError(
            f"sparse inputs {unused}: expected a table that looks them up, got "
            "none; call its embedding module in forward, or drop them from the schema"
        )

    layout = Layout(
        tables=tables,
        pooled=tuple(_pooled(schema, [each for each in found if each.lookup.output == "pooled"])),
        sequences=tuple(
            _sequences(schema, [each for each in found if each.lookup.output == "sequence"])
        ),
    )
    _check_rows(layout)
    return layout


class _Output(NamedTuple):
    """An output of an embedding module."""

    path: str
    key: str
    feature: str
    lookup: Lookup
    width: int


def _pooled(schema: Schema, found: list[_Output]) -> Iterator[PooledLookup]:
    ends: dict[Scope, int] = {"request": 0, "example": 0}
    for item in schema.sparse:
        for path, key, feature, lookup, width in found:
            if feature == item.name:
                columns = Columns(item.scope, ends[item.scope], width)
                ends[item.scope] += width
                yield PooledLookup(input=item, path=path, key=key, lookup=lookup, columns=columns)


def _sequences(schema: Schema, found: list[_Output]) -> Iterator[SequenceLookup]:
    ends: dict[Scope, int] = {"request": 0, "example": 0}
    for item in schema.sparse:
        for path, key, feature, lookup, width in found:
            if feature == item.name:
                place = Place(item.scope, ends[item.scope], width)
                ends[item.scope] += 1
                yield SequenceLookup(input=item, path=path, key=key, lookup=lookup, place=place)


def _weights(module: EmbeddingModule) -> dict[str, Tensor]:
    prefix = "embeddings." if gives_sequences(module) else "embedding_bags."
    return {
        key.removeprefix(prefix).removesuffix(".weight"): weight.float()  # itself unless FP16
        for key, weight in module.state_dict().items()
        if key.startswith(prefix)
    }


def half_tables(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Tables of data_type FP16: path of the collection, and name of the weights in it."""
    for path, each in module.named_modules():
        if isinstance(each, SEQUENCE_MODULES):
            prefix, tables = "embeddings", list[EmbeddingConfig](each.embedding_configs())
        elif isinstance(each, BAG_MODULES):
            prefix, tables = "embedding_bags", list[EmbeddingConfig](each.embedding_bag_configs())
        else:
            continue
        for table in tables:
            if table.data_type is DataType.FP16:
                yield path, f"{prefix}.{table.name}.weight"


def _outputs(path: str, module: EmbeddingModule) -> Iterator[_Output]:
    keys = iter(module.embedding_names())
    if isinstance(module, SEQUENCE_MODULES):
        for config in module.embedding_configs():
            lookup = Lookup(table=config.name, output="sequence", pooling=None)
            for feature in config.feature_names:
                yield _Output(path, next(keys), feature, lookup, config.embedding_dim)
    else:
        for bag in module.embedding_bag_configs():
            lookup = Lookup(
                table=bag.name,
                output="pooled",
                pooling="mean" if bag.pooling is PoolingType.MEAN else "sum",
            )
            for feature in bag.feature_names:
                yield _Output(path, next(keys), feature, lookup, bag.embedding_dim)


def _check_input(
    path: str, module: EmbeddingModule, feature: str, inputs: Mapping[str, SparseInput]
) -> None:
    where = f"{path}: feature {feature!r}"
    if feature not in inputs:
        raise ExportError(f"{where}: expected one of the schema's sparse inputs {list(inputs)}")
    weighted = isinstance(module, BAG_MODULES) and module.is_weighted()
    if inputs[feature].weighted != weighted:
        raise ExportError(
            f"{where}: expected weighted={weighted} in the schema as in the module, "
            f"got weighted={inputs[feature].weighted}"
        )


def _check_rows(layout: Layout) -> None:
    """Every table of an input has the rows that its id map gives, or as many as its others."""
    for each in layout.every():
        ids = each.input.ids
        expected = layout.rows(each.input) if ids is None else ids.num_rows
        rows = len(layout.tables[each.lookup.table])
        if rows != expected:
            source = "the input's first table" if ids is None else "its id map"
            raise ExportError(
                f"feature {each.input.name!r}: table {each.lookup.table!r}: expected {expected} "
                f"rows as {source} has, got {rows}"
            )
