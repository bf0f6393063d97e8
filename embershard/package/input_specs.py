"""Converts inputs and id maps to JSON and back, for manifests and checkpoints.

    Identity(9)                   {"kind": "identity", "rows": 9, "unknown": "reject", ...}
    Hash(9, seed=3)               {"kind": "hash", "rows": 9, "seed": 3}
    Vocabulary(ids, "oov")        {"kind": "vocab", "rows": len(ids) + 1, "file": ...,
                                   "unknown": "oov", "oov_row": len(ids)}

``rows`` counts the rows of the table, including its oov row.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from embershard.package.id_maps import Hash, Identity, IdMap, UnknownIds, Vocabulary
from embershard.package.manifest_inputs import (
    DenseInputSpec,
    HashIds,
    IdentityIds,
    Ids,
    KeptSparseSpec,
    Lookup,
    Part,
    SparseInputSpec,
    VocabIds,
)
from embershard.package.safetensors_file import read_vocabulary, write_vocabulary
from embershard.package.schema import DenseInput, Schema, SparseInput
from embershard.package.transforms import Bucketize, Clip, Log1p, Standardize, Transform
from embershard.package.validation import canonical_json, parse_model, refusal

ReadVocabulary: TypeAlias = Callable[[str, UnknownIds], Vocabulary]
"""Reads a vocabulary. Arguments: its file and its policy for unknown ids."""

_TRANSFORMS: Final[Mapping[str, Callable[..., Transform]]] = {
    "log1p": Log1p,
    "clip": Clip,
    "standardize": Standardize,
    "bucketize": Bucketize,
}


def specs_of(
    schema: Schema, files: Mapping[str, str]
) -> tuple[tuple[DenseInputSpec, ...], tuple[KeptSparseSpec, ...]]:
    """The specs of a schema's dense and sparse inputs. ``files`` has vocabularies by input name."""
    dense = tuple(_dense_spec(item) for item in schema.dense)
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
    """The inverse of `specs_of`. Raises InputError if the specs contradict one another."""
    return Schema(
        dense=[_dense_input(spec) for spec in dense],
        sparse=[
            SparseInput(
                spec.name,
                spec.scope,
                None if spec.ids is None else _id_map(spec.ids, read),
                spec.weighted,
                spec.max_ids,
                spec.keep,
            )
            for spec in sparse
        ],
    )


def _dense_spec(item: DenseInput) -> DenseInputSpec:
    fields: dict[str, Any] = {"name": item.name, "scope": item.scope, "default": item.default}
    if item.transforms:
        fields["transforms"] = tuple(
            {"kind": type(transform).__name__.lower(), **asdict(transform)}
            for transform in item.transforms
        )
    return DenseInputSpec(kind="dense", **fields)


def _dense_input(spec: DenseInputSpec) -> DenseInput:
    transforms = [
        _TRANSFORMS[transform.kind](**transform.model_dump(exclude={"kind"}))
        for transform in spec.transforms
    ]
    return DenseInput(spec.name, spec.scope, spec.default, tuple(transforms))


def with_lookups(
    kept: KeptSparseSpec, lookups: tuple[Lookup, ...], *, rows: int
) -> SparseInputSpec:
    """The manifest's spec of a sparse input. ``rows``: number of rows of its tables, for the
    identity map of an input without an id map."""
    fields = dict(kept.__dict__)
    if kept.ids is None:
        fields["ids"] = ids_spec(Identity(rows))
    return SparseInputSpec(**fields, lookups=lookups)


def ids_spec(ids: IdMap, *, file: str = "") -> Ids:
    if isinstance(ids, Hash):
        return HashIds(kind="hash", rows=ids.buckets, seed=ids.seed)
    rows, unknown = ids.num_rows, ids.unknown
    oov_row = rows - 1 if unknown == "oov" else None
    if isinstance(ids, Identity):
        return IdentityIds(kind="identity", rows=rows, unknown=unknown, oov_row=oov_row)
    return VocabIds(kind="vocab", rows=rows, file=file, unknown=unknown, oov_row=oov_row)


def known_ids(spec: IdentityIds | VocabIds) -> int:
    """Number of ids with a row of their own: all rows except the oov row."""
    return spec.rows - (spec.unknown == "oov")


def _id_map(spec: Ids, read: ReadVocabulary) -> IdMap:
    match spec:
        case HashIds():
            return Hash(spec.rows, spec.seed)
        case IdentityIds():
            return Identity(known_ids(spec), spec.unknown)
        case VocabIds():
            return read(spec.file, spec.unknown)


class _Schema(Part):
    dense: tuple[DenseInputSpec, ...]
    sparse: tuple[KeptSparseSpec, ...]


def vocabulary_files(schema: Schema) -> dict[str, str]:
    """A file name without folder for the vocabulary of each sparse input that has one, by input
    name: {"history": "item.safetensors", ...}. Inputs with equal vocabularies share a file, named
    after the first."""
    files: dict[str, str] = {}
    taken: set[str] = set()
    alike: dict[tuple[int, int, int], list[tuple[Vocabulary, str]]] = defaultdict(list)
    for item in schema.sparse:
        if not isinstance(item.ids, Vocabulary):
            continue
        keys = item.ids.keys
        candidates = alike[len(keys), int(keys[0]), int(keys[-1])]
        for vocabulary, file in candidates:
            if vocabulary is item.ids or vocabulary.same_ids(item.ids):
                files[item.name] = file
                break
        else:
            stem = re.sub(r"[^A-Za-z0-9_\-]", "_", item.name)[:64]
            suffixes = (f"-{number}" if number else "" for number in range(len(taken) + 1))
            file = next(f for n in suffixes if (f := f"{stem}{n}.safetensors") not in taken)
            taken.add(file)
            candidates.append((item.ids, file))
            files[item.name] = file
    return files


def schema_to_json(schema: Schema, ids_folder: Path) -> dict[str, Any]:
    """Convert a schema to JSON values, and write its vocabularies into ``ids_folder``, which is
    created if necessary. Files with the same names are replaced."""
    files = vocabulary_files(schema)
    ids_folder.mkdir(parents=True, exist_ok=True)
    vocabularies = {files[item.name]: item.ids for item in schema.sparse if item.name in files}
    for file, vocabulary in vocabularies.items():
        assert isinstance(vocabulary, Vocabulary)
        write_vocabulary(ids_folder / file, vocabulary)
    dense, sparse = specs_of(schema, files)
    return _Schema(dense=dense, sparse=sparse).model_dump(mode="json")


def schema_from_json(
    document: Mapping[str, Any], ids_folder: Path, *, file: str = "schema"
) -> Schema:
    """Read the schema that `schema_to_json` wrote. ``file`` names the document in messages. Raises
    PackageError for an unknown key, a wrong value or a damaged vocabulary; InputError if values
    contradict one another."""
    parsed, _ = parse_model(_Schema, canonical_json(document), file)
    schema = schema_of(
        parsed.dense,
        parsed.sparse,
        lambda name, unknown: read_vocabulary(ids_folder / name, unknown),
    )
    for place, (kept, item) in enumerate(zip(parsed.sparse, schema.sparse, strict=True)):
        if kept.ids is not None and item.ids is not None:
            _check_ids(kept.ids, item.ids, file, f"sparse.{place}.ids")
    return schema


def _check_ids(spec: Ids, ids: IdMap, file: str, where: str) -> None:
    """Check that a spec's rows and oov row are those of the id map that was read."""
    actual = ids_spec(ids, file=spec.file if isinstance(spec, VocabIds) else "")
    if spec != actual:
        expected, got = actual.model_dump_json(), spec.model_dump_json()
        raise refusal(file, where, expected=expected, got=got)
