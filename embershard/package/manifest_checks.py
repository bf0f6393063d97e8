"""What the fields of a manifest must say about one another."""

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, Final

from embershard.errors import InputError, PackageError
from embershard.package.input_specs import known_ids
from embershard.package.manifest import (
    CHUNK_ALIGN,
    CHUNK_BYTES_MAX,
    Manifest,
    ProgramSpec,
    TableSpec,
    fingerprint_of,
)
from embershard.package.manifest_inputs import HashIds, Ids, Lookup, SparseInputSpec, VocabIds
from embershard.package.row_format import RowFormat
from embershard.package.safetensors_file import HEADER_BYTES_MAX
from embershard.package.validation import BYTES_MAX, MANIFEST, MANIFEST_DIGEST, parse_model, refusal

SAMPLES_BYTES_MAX: Final = 1 << 30


def parse_manifest(data: bytes) -> Manifest:
    """Parses and checks the bytes of manifest.json."""
    manifest, document = parse_model(Manifest, data, MANIFEST)
    for check in (_check_names, _check_tables, _check_inputs, _check_files, _check_sizes):
        check(manifest)
    # Of the document, not of the model: the digest is taken of the numbers as written.
    expected = fingerprint_of(document["inputs"], document["outputs"])
    if manifest.fingerprint != expected:
        raise _refuse("schema", expected, manifest.fingerprint)
    return manifest


def _check_names(manifest: Manifest) -> None:
    _distinct("inputs.{}.name", (each.name for each in manifest.inputs))
    _distinct("outputs.{}.name", (each.name for each in manifest.outputs))
    _distinct("tables.{}.name", (each.name for each in manifest.tables))
    _distinct("plans.{}", manifest.plans)
    _distinct("programs.{}.target", (each.target for each in manifest.programs))
    if not any(isinstance(program, ProgramSpec) for program in manifest.programs):
        raise _refuse("programs", "one of kind torchscript", "none")
    if manifest.default_plan not in manifest.plans:
        raise _refuse("default_plan", _one_of(manifest.plans), manifest.default_plan)
    first_sparse = len(manifest.dense)
    for place, each in enumerate(manifest.inputs):
        expected = "dense" if place < first_sparse else "sparse"
        if each.kind != expected:
            raise _refuse(f"inputs.{place}.kind", f"{expected} (dense inputs first)", each.kind)


def _check_tables(manifest: Manifest) -> None:
    for place, table in enumerate(manifest.tables):
        where = f"tables.{place}"
        try:
            row_format = RowFormat(table.weights, table.dim)
        except InputError as error:
            # "dim: expected 1 .. 65536, got 65537" is the format's own wording.
            raise PackageError(f"{MANIFEST}: {where}.{error}") from None
        if table.row_bytes != row_format.row_bytes:
            raise _refuse(f"{where}.row_bytes", row_format.row_bytes, table.row_bytes)
        _check_chunks(table, where)


def _check_chunks(table: TableSpec, where: str) -> None:
    chunk_bytes = table.rows_per_chunk * table.row_bytes
    if chunk_bytes % CHUNK_ALIGN or chunk_bytes > CHUNK_BYTES_MAX:
        raise _refuse(
            f"{where}.rows_per_chunk",
            f"rows of {table.row_bytes} bytes that fill a multiple of {CHUNK_ALIGN} bytes, "
            f"at most {CHUNK_BYTES_MAX}",
            f"{table.rows_per_chunk} rows, {chunk_bytes} bytes",
        )
    chunks = -(-table.rows // table.rows_per_chunk)
    if len(table.chunks) != chunks:
        raise _refuse(f"{where}.chunks", f"{chunks} files", f"{len(table.chunks)}")


def _check_inputs(manifest: Manifest) -> None:
    tables = {table.name: table for table in manifest.tables}
    for place, each in enumerate(manifest.inputs):
        if not isinstance(each, SparseInputSpec):
            continue
        where = f"inputs.{place}"
        _check_oov(each.ids, f"{where}.ids")
        for number, lookup in enumerate(each.lookups):
            if lookup.table not in tables:
                raise _refuse(f"{where}.lookups.{number}.table", _one_of(tables), lookup.table)
            _check_lookup(each, lookup, where, f"{where}.lookups.{number}")
            rows = tables[lookup.table].rows
            if each.ids.rows != rows:
                expected = f"{rows}, the rows of table {lookup.table}"
                raise _refuse(f"{where}.ids.rows", expected, each.ids.rows)


def _check_lookup(each: SparseInputSpec, lookup: Lookup, where: str, field: str) -> None:
    """What a sequence has not: pooling, and weights, which nothing would multiply."""
    if lookup.output == "pooled":
        if lookup.pooling is None:
            raise _refuse(f"{field}.pooling", "sum or mean where output is pooled", "null")
        return
    if lookup.pooling is not None:
        raise _refuse(f"{field}.pooling", "null where output is sequence", lookup.pooling)
    if each.weighted:
        raise _refuse(f"{where}.weighted", "false where a lookup's output is sequence", "true")


def _check_oov(ids: Ids, where: str) -> None:
    if isinstance(ids, HashIds):
        return
    expected = ids.rows - 1 if ids.unknown == "oov" else None
    if ids.oov_row != expected:
        raise _refuse(
            f"{where}.oov_row",
            f"{'null' if expected is None else expected} where unknown is {ids.unknown}",
            "null" if ids.oov_row is None else ids.oov_row,
        )
    if expected == 0:
        raise _refuse(f"{where}.rows", "a known row beside the oov row", ids.rows)


def _check_files(manifest: Manifest) -> None:
    for own in (MANIFEST, MANIFEST_DIGEST):
        if own in manifest.files:
            raise PackageError(f"{MANIFEST}: files.{own}: unexpected key")
    for file in manifest.files:
        for folder in PurePosixPath(file).parents:
            if str(folder) in manifest.files:
                raise _refuse(f"files.{file}", f"{folder} to be a folder", "a file")
    for field, file in _named_files(manifest):
        if file not in manifest.files:
            raise _refuse(field, "a file that files lists", file)
    seen: set[str] = set()
    for field, file in _named_files(manifest):
        # Inputs may share a vocabulary; nothing else is two things at once.
        if file in seen and not field.endswith(".ids.file"):
            raise _refuse(field, "a file of its own", f"{file}, named before")
        seen.add(file)


def _check_sizes(manifest: Manifest) -> None:
    """Files that are read whole take memory before anything else of them is known."""
    most = {f"plans/{plan}.json": BYTES_MAX for plan in manifest.plans}
    most[manifest.samples] = SAMPLES_BYTES_MAX
    for each in manifest.sparse:
        if isinstance(each.ids, VocabIds):
            # An id is a key and a row of 8 bytes each.
            most[each.ids.file] = known_ids(each.ids) * 16 + 8 + HEADER_BYTES_MAX
    for file, bytes_max in most.items():
        size = manifest.files[file].bytes
        if size > bytes_max:
            raise _refuse(f"files.{file}.bytes", f"at most {bytes_max}", size)


def _named_files(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Every field that names a file, with the file."""
    for place, table in enumerate(manifest.tables):
        for number, chunk in enumerate(table.chunks):
            yield f"tables.{place}.chunks.{number}", chunk
    for place, each in enumerate(manifest.inputs):
        if isinstance(each, SparseInputSpec) and each.ids.kind == "vocab":
            yield f"inputs.{place}.ids.file", each.ids.file
    for place, program in enumerate(manifest.programs):
        yield f"programs.{place}.file", program.file
    for place, plan in enumerate(manifest.plans):
        yield f"plans.{place}", f"plans/{plan}.json"
    yield "samples", manifest.samples


def _distinct(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            raise _refuse(field.format(place), "distinct names", f"{name!r} twice")
        seen.add(name)


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names) or 'none'}"


def _refuse(field: str, expected: Any, got: Any) -> PackageError:
    return refusal(MANIFEST, field, expected=expected, got=got)
