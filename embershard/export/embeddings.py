"""Finds the tables and lookups of a module, and lays out the results of the lookups.

The pooled vectors of one scope are columns of one matrix, in the order of the schema's sparse
inputs. Vectors of one input follow the order of its tables:

    request_pooled [R, P_r]    user | history | …
    example_pooled [B, P_e]    item | genres | …

A lookup without pooling results in a sequence: the vectors of all lists, and the offset of each
list. The sequences of one scope are numbered in the same order:

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
    """Location of a lookup's result.

    | result | start | width |
    |---|---|---|
    | pooled vectors | first column in the matrix of the scope | columns |
    | sequence | number of the sequence in the scope | columns of its vectors |
    """

    scope: Scope
    start: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLookup:
    input: SparseInput

    path: str
    """Path of the embedding module."""

    key: str
    """Key of the module's output."""

    lookup: Lookup
    columns: Columns


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Tables and lookups of a module, and the locations of their results."""

    tables: Mapping[str, Tensor]
    """The module's weights by table name, ``(rows, dim)``: float32, or float16 for FP16 tables."""

    pooled: tuple[TableLookup, ...]
    """In the order of their columns, for each scope."""

    sequences: tuple[TableLookup, ...]
    """In the order of their numbers, for each scope."""

    def every(self) -> list[TableLookup]:
        return [*self.pooled, *self.sequences]

    def of_input(self, name: str) -> tuple[Lookup, ...]:
        return tuple(self._by_input[name])

    def lookup(self, path: str, key: str) -> TableLookup:
        return self._by_output[path, key]

    def rows(self, item: SparseInput) -> int:
        """Number of rows of each table of an input."""
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


def returns_sequences(module: EmbeddingModule) -> bool:
    return isinstance(module, SEQUENCE_MODULES)


def lay_out(modules: Mapping[str, EmbeddingModule], schema: Schema) -> Layout:
    """Make the layout of a module's lookups, from its embedding modules by path. Raises ExportError
    if two tables have the same name, a module contradicts the schema, or a sparse input is not
    looked up."""
    tables: dict[str, Tensor] = {}
    for path, module in modules.items():
        for name, weight in _weights(module).items():
            if name in tables:
                raise ExportError(
                    f"{path}: table {name!r}: expected a table with another name, got this name "
                    "twice"
                )
            tables[name] = weight
    inputs = {item.name: item for item in schema.sparse}
    outputs: dict[str, list[_Output]] = {name: [] for name in inputs}
    for path, module in modules.items():
        for output in _outputs(path, module):
            _check_input(path, module, output.feature, inputs)
            outputs[output.feature].append(output)
    if unused := [name for name, lookups in outputs.items() if not lookups]:
        raise ExportError(
            f"sparse inputs {unused}: expected tables that look them up, got none; call their "
            "embedding module in forward, or drop them from the schema"
        )

    layout = Layout(
        tables=tables,
        pooled=tuple(_place_outputs(schema, outputs, "pooled")),
        sequences=tuple(_place_outputs(schema, outputs, "sequence")),
    )
    _check_rows(layout)
    return layout


class _Output(NamedTuple):
    path: str
    key: str
    feature: str
    lookup: Lookup
    width: int


def _place_outputs(
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
    return "embeddings." if returns_sequences(module) else "embedding_bags."


def _weights(module: EmbeddingModule) -> dict[str, Tensor]:
    prefix = _prefix(module)
    return {
        key.removeprefix(prefix).removesuffix(".weight"): weight
        for key, weight in module.state_dict().items()
        if key.startswith(prefix)
    }


def configs_of(module: EmbeddingModule) -> list[EmbeddingBagConfig] | list[EmbeddingConfig]:
    if isinstance(module, BAG_MODULES):
        return module.embedding_bag_configs()
    return module.embedding_configs()


def half_tables(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the tables of data type FP16: path of the collection, and name of the weights in it."""
    for path, part in module.named_modules():
        if isinstance(part, EMBEDDING_MODULES):
            for table in configs_of(part):
                if table.data_type is DataType.FP16:
                    yield path, f"{_prefix(part)}{table.name}.weight"


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
        raise ExportError(
            f"{where}: expected one of the schema's sparse inputs {list(inputs)}, got {feature!r}"
        )
    weighted = isinstance(module, BAG_MODULES) and module.is_weighted()
    if inputs[feature].weighted != weighted:
        raise ExportError(
            f"{where}: expected weighted={weighted} in the schema, as in the module, "
            f"got weighted={inputs[feature].weighted}"
        )


def _check_rows(layout: Layout) -> None:
    """Check that the tables of an input have the rows of its id map, or all the same number."""
    for table_lookup in layout.every():
        item, table = table_lookup.input, table_lookup.lookup.table
        expected = layout.rows(item) if item.ids is None else item.ids.num_rows
        rows = len(layout.tables[table])
        if rows != expected:
            source = "the input's first table" if item.ids is None else "its id map"
            raise ExportError(
                f"feature {item.name!r}: table {table!r}: expected {expected} rows, as {source} "
                f"has, got {rows}"
            )
