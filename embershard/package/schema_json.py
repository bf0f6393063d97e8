"""A schema as JSON, its vocabularies in files beside it: how checkpoints keep it.

{"dense": [...], "sparse": [...]}, each input as a manifest has it, but for two things: no
"lookups", which export finds in the module, and "ids" may be null, for ids that are the rows of
tables not known yet. Files of vocabularies lie in one folder, and are named without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embershard.package.id_maps import IdMap, Vocabulary
from embershard.package.input_specs import ids_spec, schema_of, specs_of
from embershard.package.manifest_inputs import DenseInputSpec, Ids, KeptSparseSpec, Part, VocabIds
from embershard.package.refusal import refusal
from embershard.package.schema import Schema
from embershard.package.strict_json import canonical_json
from embershard.package.validation import parse_model
from embershard.package.vocabulary_file import read_vocabulary, write_vocabulary


class _Schema(Part):
    dense: tuple[DenseInputSpec, ...]
    sparse: tuple[KeptSparseSpec, ...]


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
    dense, sparse = specs_of(schema, files)
    return _Schema(dense=dense, sparse=sparse).model_dump(mode="json")


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
    schema = schema_of(
        parsed.dense,
        parsed.sparse,
        lambda name, unknown: read_vocabulary(ids_folder / name, unknown),
    )
    for place, (kept, item) in enumerate(zip(parsed.sparse, schema.sparse, strict=True)):
        if kept.ids is not None and item.ids is not None:
            _check_ids(kept.ids, item.ids, file, f"sparse.{place}.ids")
    return schema


def _check_ids(said: Ids, ids: IdMap, file: str, where: str) -> None:
    """A vocabulary has as many ids as rows say, and the oov row is the last."""
    meant = ids_spec(ids, file=said.file if isinstance(said, VocabIds) else "")
    if said != meant:
        expected, got = meant.model_dump_json(), said.model_dump_json()
        raise refusal(file, where, expected=expected, got=got)
