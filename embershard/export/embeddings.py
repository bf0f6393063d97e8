"""What a module looks up: its tables, and where each pooled vector and each sequence lies.

The vectors of one scope stand side by side in one matrix, in the order of the schema's sparse
inputs and, for an input of several tables, of the tables:

    request_pooled [R, P_r]    user | history | …
    example_pooled [B, P_e]    item | genres | …

What is looked up without pooling is a sequence: the vectors of all lists, and where each list
begins. The sequences of one scope are numbered in the same order:

    request_sequences          history: values [T, dim], offsets [R + 1] | …
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.modules import (
    DataType,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    PoolingType,
)
from embershard.modules.fused_embeddings import BagModule, SequenceModule
from embershard.package.manifest_inputs import Lookup
from embershard.package.schema import Schema, Scope, SparseInput

EmbeddingModule: TypeAlias = BagModule | SequenceModule
BAG_MODULES = (EmbeddingBagCollection, FusedEmbeddingBagCollection)
SEQUENCE_MODULES = (EmbeddingCollection, FusedEmbeddingCollection)
EMBEDDING_MODULES = (*BAG_MODULES, *SEQUENCE_MODULES)
SCOPES: tuple[Scope, Scope] = ("request", "example")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where what a lookup gives lies: columns ``start .. start + width`` of its scope's matrix. Of
    a sequence ``start`` is its number in its scope, ``width`` that of its vectors."""

    scope: Scope
    start: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLookup:
    """One sparse input, looked up in one table."""

    input: SparseInput

    path: str
    """Of the embedding module."""

    key: str
    """Of the module's output."""

    lookup: Lookup
    columns: Columns


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Tables and lookups of a module, and where what they give lies."""

    tables: Mapping[str, Tensor]
    """By name, ``(rows, dim)``, float32, or float16 of FP16 tables: the module's own."""

    pooled: tuple[TableLookup, ...]
    """In the order of their columns."""

    sequences: tuple[TableLookup, ...]
    """In the order of their numbers, those of both scopes."""

    def every(self) -> list[TableLookup]:
        """All lookups, the pooled ones first."""
        return [*self.pooled, *self.sequences]

    def of_input(self, name: str) -> tuple[Lookup, ...]:
        """The lookups of one sparse input, the pooled ones first."""
        return tuple(self._by_input[name])

    def lookup(self, path: str, key: str) -> TableLookup:
        """That of an output of an embedding module."""
        return self._by_output[path, key]

    def rows(self, item: SparseInput) -> int:
        """Rows of the tables that an input is looked up in."""
        return len(self.tables[self.of_input(item.name)[0].table])

    @cached_property
    def _by_input(self) -> Mapping[str, list[Lookup]]:
        lookups: dict[str, list[Lookup]] = defaultdict(list)
        for table_lookup in self.every():
            lookups[table_lookup.input.name].append(table_lookup.lookup)
        return lookups

    @cached_property
    def _by_output(self) -> Mapping[tuple[str, str], TableLookup]:
        return {(lookup.path, lookup.key): lookup for lookup in self.every()}


def gives_sequences(module: EmbeddingModule) -> bool:
    """Whether its outputs are not pooled."""
    return isinstance(module, SEQUENCE_MODULES)


def lay_out(modules: Mapping[str, EmbeddingModule], schema: Schema) -> Layout:
    """Decide where every pooled vector and every sequence lies. ``modules``: by path; they look up
    every sparse input."""
    tables: dict[str, Tensor] = {}
    for path, module in modules.items():
        for name, weight in _weights(module).items():
            if name in tables:
                raise ExportError(
                    f"{path}: table {name!r}: expected a name used once, got it twice"
                )
            tables[name] = weight
    inputs = {item.name: item for item in schema.sparse}
    outputs: dict[str, list[_Output]] = {name: [] for name in inputs}
    for path, module in modules.items():
        for output in _outputs(path, module):
            _check_input(path, module, output.feature, inputs)
            outputs[output.feature].append(output)
    if unused := [name for name, found in outputs.items() if not found]:
        raise ExportError(
            f"sparse inputs {unused}: expected a table that looks them up, got "
            "none; call its embedding module in forward, or drop them from the schema"
        )

    layout = Layout(
        tables=tables,
        pooled=tuple(_placed(schema, outputs, "pooled")),
        sequences=tuple(_placed(schema, outputs, "sequence")),
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


def _placed(
    schema: Schema,
    outputs: Mapping[str, list[_Output]],
    output: Literal["pooled", "sequence"],
) -> Iterator[TableLookup]:
    ends: dict[Scope, int] = {"request": 0, "example": 0}
    for item in schema.sparse:
        for path, key, _, lookup, width in outputs[item.name]:
            if lookup.output == output:
                columns = Columns(item.scope, ends[item.scope], width)
                ends[item.scope] += width if output == "pooled" else 1
                yield TableLookup(input=item, path=path, key=key, lookup=lookup, columns=columns)


def _prefix(module: EmbeddingModule) -> str:
    return "embeddings." if gives_sequences(module) else "embedding_bags."


def _weights(module: EmbeddingModule) -> dict[str, Tensor]:
    prefix = _prefix(module)
    return {
        key.removeprefix(prefix).removesuffix(".weight"): weight
        for key, weight in module.state_dict().items()
        if key.startswith(prefix)
    }


def configs_of(module: EmbeddingModule) -> list[EmbeddingBagConfig] | list[EmbeddingConfig]:
    """Its tables, in order."""
    if isinstance(module, BAG_MODULES):
        return module.embedding_bag_configs()
    return module.embedding_configs()


def half_tables(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Tables of data_type FP16: path of the collection, and name of the weights in it."""
    for path, each in module.named_modules():
        if isinstance(each, EMBEDDING_MODULES):
            for table in configs_of(each):
                if table.data_type is DataType.FP16:
                    yield path, f"{_prefix(each)}{table.name}.weight"


def _outputs(path: str, module: EmbeddingModule) -> Iterator[_Output]:
    keys = iter(module.embedding_names())
    for config in configs_of(module):
        lookup = Lookup(table=config.name, output="sequence", pooling=None)
        if isinstance(config, EmbeddingBagConfig):
            pooling: Literal["mean", "sum"] = (
                "mean" if config.pooling is PoolingType.MEAN else "sum"
            )
            lookup = Lookup(table=config.name, output="pooled", pooling=pooling)
        for feature in config.feature_names:
            yield _Output(path, next(keys), feature, lookup, config.embedding_dim)


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
