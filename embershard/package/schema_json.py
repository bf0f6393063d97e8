"""A schema as JSON, its vocabularies in files beside it: how checkpoints keep it.

{"dense":  [{"name": ..., "scope": ..., "default": ...}, ...],
 "sparse": [{"name": ..., "scope": ..., "weighted": ..., "max_ids": ..., "keep": ...,
             "ids": null | {"kind": "identity", "rows": 9, "unknown": "reject"}
                         | {"kind": "hash", "buckets": 9, "seed": 0}
                         | {"kind": "vocab", "file": "user.safetensors", "unknown": "oov"}}]}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from embershard.package.id_maps import Hash, Identity, IdMap, UnknownIds, Vocabulary
from embershard.package.manifest import FilePath, Part
from embershard.package.schema import DenseInput, Keep, Schema, Scope, SparseInput
from embershard.package.strict_json import canonical_json
from embershard.package.validation import parse_model
from embershard.package.vocabulary_file import read_vocabulary, write_vocabulary

__all__ = ["schema_from_json", "schema_to_json", "vocabulary_files"]


class _Identity(Part):
    kind: Literal["identity"]
    rows: int
    unknown: UnknownIds


class _Hash(Part):
    kind: Literal["hash"]
    buckets: int
    seed: int


class _Vocab(Part):
    kind: Literal["vocab"]
    file: FilePath
    unknown: UnknownIds


class _Dense(Part):
    name: str
    scope: Scope
    default: float | None


class _Sparse(Part):
    name: str
    scope: Scope
    weighted: bool
    max_ids: int
    keep: Keep
    ids: Annotated[_Identity | _Hash | _Vocab, Field(discriminator="kind")] | None


class _Schema(Part):
    dense: tuple[_Dense, ...]
    sparse: tuple[_Sparse, ...]


def vocabulary_files(schema: Schema) -> dict[str, str]:
    """A file name for the vocabulary of each sparse input that has one.

    Inputs whose vocabularies hold the same ids share a file, named after the first of them.

    Returns:
        input name -> file name without folder: {"history": "item.safetensors", ...}.
    """
    files: dict[str, str] = {}
    written: list[tuple[Vocabulary, str]] = []
    for each in schema.sparse:
        if not isinstance(each.ids, Vocabulary):
            continue
        for vocabulary, file in written:
            if vocabulary is each.ids or vocabulary.same_ids(each.ids):
                files[each.name] = file
                break
        else:
            stem = re.sub(r"[^A-Za-z0-9_\-]", "_", each.name)[:64]
            taken = {file for _, file in written}
            numbers = (f"-{number}" if number else "" for number in range(len(taken) + 1))
            file = next(f for n in numbers if (f := f"{stem}{n}.safetensors") not in taken)
            written.append((each.ids, file))
            files[each.name] = file
    return files


def schema_to_json(schema: Schema, ids_folder: Path) -> dict[str, Any]:
    """The schema as JSON values; its vocabularies are written into ``ids_folder``.

    The folder is made if it is not there. Files of the same names in it are replaced.
    """
    files = vocabulary_files(schema)
    ids_folder.mkdir(parents=True, exist_ok=True)
    kept = {files[each.name]: each.ids for each in schema.sparse if each.name in files}
    for file, vocabulary in kept.items():
        assert isinstance(vocabulary, Vocabulary)
        write_vocabulary(ids_folder / file, vocabulary)
    document = _Schema(
        dense=tuple(
            _Dense(name=each.name, scope=each.scope, default=each.default) for each in schema.dense
        ),
        sparse=tuple(
            _Sparse(
                name=each.name,
                scope=each.scope,
                weighted=each.weighted,
                max_ids=each.max_ids,
                keep=each.keep,
                ids=_ids_to_json(each.ids, files.get(each.name, "")),
            )
            for each in schema.sparse
        ),
    )
    return document.model_dump()


def schema_from_json(
    document: Mapping[str, Any], ids_folder: Path, *, file: str = "schema"
) -> Schema:
    """The schema that `schema_to_json` wrote.

    Args:
        document: its JSON values.
        ids_folder: where its vocabularies lie.
        file: the name to use in refusals.

    Raises:
        PackageError: an unknown key, a wrong value or a damaged vocabulary.
        InputError: values that contradict one another, such as two inputs with one name.
    """
    parsed, _ = parse_model(_Schema, canonical_json(document), file)
    return Schema(
        dense=[DenseInput(each.name, each.scope, each.default) for each in parsed.dense],
        sparse=[
            SparseInput(
                each.name,
                each.scope,
                _ids_from_json(each.ids, ids_folder),
                each.weighted,
                each.max_ids,
                each.keep,
            )
            for each in parsed.sparse
        ],
    )


def _ids_to_json(ids: IdMap | None, file: str) -> _Identity | _Hash | _Vocab | None:
    match ids:
        case Identity():
            return _Identity(kind="identity", rows=ids.rows, unknown=ids.unknown)
        case Hash():
            return _Hash(kind="hash", buckets=ids.buckets, seed=ids.seed)
        case Vocabulary():
            return _Vocab(kind="vocab", file=file, unknown=ids.unknown)
        case None:
            return None


def _ids_from_json(ids: _Identity | _Hash | _Vocab | None, folder: Path) -> IdMap | None:
    match ids:
        case _Identity():
            return Identity(ids.rows, ids.unknown)
        case _Hash():
            return Hash(ids.buckets, ids.seed)
        case _Vocab():
            return read_vocabulary(folder / ids.file, ids.unknown)
        case None:
            return None
