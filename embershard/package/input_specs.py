"""Inputs and id maps as JSON says them, and back: one wording for manifests and checkpoints.

    Identity(9)                   {"kind": "identity", "rows": 9, "unknown": "reject", ...}
    Hash(9, seed=3)               {"kind": "hash", "rows": 9, "seed": 3}
    Vocabulary(ids, "oov")        {"kind": "vocab", "rows": len(ids) + 1, "file": ...,
                                   "unknown": "oov", "oov_row": len(ids)}

``rows`` are those of the table behind the map, its oov row included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from embershard.package.id_maps import Hash, Identity, IdMap, UnknownIds, Vocabulary
from embershard.package.manifest_inputs import (
    DenseInputSpec,
    HashIds,
    IdentityIds,
    Ids,
    KeptSparseSpec,
    Lookup,
    SparseInputSpec,
    VocabIds,
)
from embershard.package.schema import DenseInput, Schema, SparseInput

ReadVocabulary: TypeAlias = Callable[[str, UnknownIds], Vocabulary]
"""From a spec's file and policy."""


def specs_of(
    schema: Schema, files: Mapping[str, str]
) -> tuple[tuple[DenseInputSpec, ...], tuple[KeptSparseSpec, ...]]:
    """What JSON says of a schema's dense and sparse inputs. ``files``: of the vocabularies, by
    input."""
    dense = tuple(
        DenseInputSpec(kind="dense", name=item.name, scope=item.scope, default=item.default)
        for item in schema.dense
    )
    sparse = tuple(
        KeptSparseSpec(
            kind="sparse",
            name=item.name,
            scope=item.scope,
            weighted=item.weighted,
            max_ids=item.max_ids,
            keep=item.keep,
            ids=None if item.ids is None else ids_spec(item.ids, file=files.get(item.name, "")),
        )
        for item in schema.sparse
    )
    return dense, sparse


def schema_of(
    dense: Iterable[DenseInputSpec], sparse: Iterable[KeptSparseSpec], read: ReadVocabulary
) -> Schema:
    """The schema that `specs_of` was given. `InputError`: values that contradict one another, such
    as two inputs with one name."""
    return Schema(
        dense=[DenseInput(each.name, each.scope, each.default) for each in dense],
        sparse=[
            SparseInput(
                each.name,
                each.scope,
                None if each.ids is None else _id_map(each.ids, read),
                each.weighted,
                each.max_ids,
                each.keep,
            )
            for each in sparse
        ],
    )


def with_lookups(
    kept: KeptSparseSpec, lookups: tuple[Lookup, ...], *, rows: int
) -> SparseInputSpec:
    """The input as a manifest has it. ``rows``: of the tables; without an id map, the id is the
    row."""
    fields = dict(kept.__dict__)
    if kept.ids is None:
        fields["ids"] = ids_spec(Identity(rows))
    return SparseInputSpec(**fields, lookups=lookups)


def ids_spec(ids: IdMap, *, file: str = "") -> Ids:
    """What JSON says of an id map; ``file`` holds it if it is a vocabulary."""
    if isinstance(ids, Hash):
        return HashIds(kind="hash", rows=ids.buckets, seed=ids.seed)
    rows, unknown = ids.num_rows, ids.unknown
    oov_row = rows - 1 if unknown == "oov" else None
    if isinstance(ids, Identity):
        return IdentityIds(kind="identity", rows=rows, unknown=unknown, oov_row=oov_row)
    return VocabIds(kind="vocab", rows=rows, file=file, unknown=unknown, oov_row=oov_row)


def known_ids(spec: IdentityIds | VocabIds) -> int:
    """Ids that have a row of their own: all rows but the oov row."""
    return spec.rows - (spec.unknown == "oov")


def _id_map(spec: Ids, read: ReadVocabulary) -> IdMap:
    match spec:
        case HashIds():
            return Hash(spec.rows, spec.seed)
        case IdentityIds():
            return Identity(known_ids(spec), spec.unknown)
        case VocabIds():
            return read(spec.file, spec.unknown)
