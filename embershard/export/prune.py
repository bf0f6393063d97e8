"""Leaves out rows that training seldom looked up."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.export.embeddings import EMBEDDING_MODULES, EmbeddingModule, configs_of
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
)
from embershard.modules.fused_embeddings import BagModule
from embershard.package.id_maps import Hash, Identity, IdMap, Vocabulary
from embershard.package.schema import Schema, SparseInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedTable:
    rows_kept: int
    rows_dropped: int

    lookups_lost: float
    """Share of the table's lookups in training that were of dropped rows, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """Arguments for ``export_model``."""

    module: nn.Module
    """A shallow copy of the module with new collections in place of the pruned ones."""

    schema: Schema
    """The schema with id maps of the kept rows."""

    tables: Mapping[str, PrunedTable]
    """By ``<path of the collection>.<table>``, as ``access_counts``."""


def prune_rows(
    module: nn.Module, schema: Schema, access_counts: Mapping[str, Tensor], *, min_accesses: int
) -> Pruned:
    """Leave out rows with fewer than ``min_accesses`` lookups. Afterwards their ids are unknown.

    ::

        from embershard.export import prune_rows

        counts = {"embeddings.items": torch.tensor([9, 1, 5, 2])}  # Row 3 is for unknown ids.
        pruned = prune_rows(model, schema, counts, min_accesses=2)
        assert pruned.tables["embeddings.items"].rows_kept == 2
        es.export_model(pruned.module, pruned.schema, "repository/ranker/2")

    Args:
        module: as for ``export_model``.
        schema: the module's inputs. All inputs of a table with counts have the same Identity or
            Vocabulary, with ``unknown`` oov or zero, and use no other table.
        access_counts: for each table to prune, ``<path of the collection>.<table>`` -> integers
            ``(num_embeddings,)``; see ``DistributedModelParallel.access_counts``.
        min_accesses: at least 1. The row of unknown ids stays in any case.

    Raises:
        ExportError: counts fit no table, a table would have no row left, or the inputs of a table
            do not fulfil the conditions above.
    """
    if min_accesses < 1:
        raise ExportError(f"min_accesses: expected at least 1, got {min_accesses}")
    known = dict(_tables(module))
    inputs = {item.name: item for item in schema.sparse}
    report, kept_of = dict[str, PrunedTable](), dict[str, dict[str, Tensor]]()
    for key, counts in access_counts.items():
        if key not in known:
            raise ExportError(f"access counts: expected keys among {sorted(known)}, got {key!r}")
        path, table = known[key]
        users = [config for _, config in known.values() if config is not table]
        ids = _id_map(key, table, inputs, users)
        if counts.shape != (table.num_embeddings,):
            raise ExportError(
                f"access counts of {key!r}: expected shape ({table.num_embeddings},), "
                f"got {tuple(counts.shape)}"
            )
        rows = table.num_embeddings - (ids.unknown == "oov")
        kept = (counts[:rows] >= min_accesses).nonzero().flatten()
        if not len(kept):
            raise ExportError(
                f"table {key!r}: expected a row with at least {min_accesses} lookups, "
                f"got at most {int(counts[:rows].max())}"
            )
        lost = int(counts[:rows].sum() - counts[kept].sum())
        report[key] = PrunedTable(
            rows_kept=len(kept),
            rows_dropped=rows - len(kept),
            lookups_lost=lost / max(int(counts.sum()), 1),
        )
        known_ids = np.arange(ids.rows) if isinstance(ids, Identity) else ids.ids
        pruned_ids = Vocabulary(known_ids[kept.numpy()], unknown=ids.unknown)
        for feature in table.feature_names:
            inputs[feature] = replace(inputs[feature], ids=pruned_ids)
        unknown_row = torch.arange(rows, table.num_embeddings)
        kept_of.setdefault(path, {})[table.name] = torch.cat([kept, unknown_row])
    for path, tables in kept_of.items():
        collection = module.get_submodule(path)
        assert isinstance(collection, EMBEDDING_MODULES)
        module = _with_submodule(module, path, _prune_collection(collection, tables))
    schema = Schema(dense=schema.dense, sparse=[inputs[item.name] for item in schema.sparse])
    return Pruned(module=module, schema=schema, tables=report)


def prunable_counts(
    module: nn.Module, schema: Schema, access_counts: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The counts of tables without hashed ids. A hash may send an id to any row, so no row of a
    hashed table can be left out."""
    hashed = {item.name for item in schema.sparse if isinstance(item.ids, Hash)}
    whole = {key for key, (_, table) in _tables(module) if hashed & {*table.feature_names}}
    return {key: counts for key, counts in access_counts.items() if key not in whole}


def _tables(module: nn.Module) -> Iterator[tuple[str, tuple[str, EmbeddingConfig]]]:
    """Yield the key of a table's counts, the path of its collection, and the table."""
    for path, part in module.named_modules():
        if isinstance(part, EMBEDDING_MODULES):
            for table in configs_of(part):
                yield f"{path}.{table.name}" if path else table.name, (path, table)


def _id_map(
    key: str,
    table: EmbeddingConfig,
    inputs: Mapping[str, SparseInput],
    others: list[EmbeddingConfig],
) -> Identity | Vocabulary:
    maps = list[IdMap | None]()
    for feature in table.feature_names:
        where = f"table {key!r}: feature {feature!r}"
        if feature not in inputs:
            raise ExportError(
                f"{where}: expected one of the schema's inputs {sorted(inputs)}, got {feature!r}"
            )
        if any(feature in other.feature_names for other in others):
            raise ExportError(f"{where}: expected one table that looks it up, got several")
        maps.append(inputs[feature].ids)
    first = maps[0]
    if not isinstance(first, Identity | Vocabulary) or first.unknown == "reject":
        raise ExportError(
            f"table {key!r}: expected an Identity or a Vocabulary with unknown oov or zero as id "
            f"map, got {first!r}"
        )
    if any(id_map != first for id_map in maps):
        raise ExportError(
            f"table {key!r}: expected the same id map for all its features, got several"
        )
    return first


@torch.no_grad()
def _prune_collection(
    module: EmbeddingModule, kept: Mapping[str, Tensor]
) -> EmbeddingBagCollection | EmbeddingCollection:
    tables = [
        replace(table, num_embeddings=len(kept[table.name])) if table.name in kept else table
        for table in configs_of(module)
    ]
    collection = (
        EmbeddingBagCollection(cast(list[EmbeddingBagConfig], tables), module.is_weighted())
        if isinstance(module, BagModule)
        else EmbeddingCollection(tables)
    )
    weights = module.state_dict()
    for name, into in collection.state_dict().items():  # "embedding_bags.<table>.weight"
        rows = kept.get(name.split(".")[1])
        into.copy_(weights[name] if rows is None else weights[name][rows])
    return collection


def _with_submodule(module: nn.Module, path: str, new: nn.Module) -> nn.Module:
    if not path:
        return new
    name, _, rest = path.partition(".")
    changed = copy.copy(module)
    changed._modules = dict(module._modules)
    changed._modules[name] = _with_submodule(module.get_submodule(name), rest, new)
    return changed
