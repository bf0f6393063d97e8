"""Checks that the fields of a manifest agree with one another."""

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
    manifest, document = parse_model(Manifest, data, MANIFEST)
    for check in (_check_names, _check_tables, _check_inputs, _check_files, _check_sizes):
        check(manifest)
    # From the document, since the models may write numbers differently.
    expected = fingerprint_of(document["inputs"], document["outputs"])
    if manifest.fingerprint != expected:
        raise _refuse("schema", expected, manifest.fingerprint)
    return manifest


def _check_names(manifest: Manifest) -> None:
    _check_distinct("inputs.{}.name", (spec.name for spec in manifest.inputs))
    _check_distinct("outputs.{}.name", (output.name for output in manifest.outputs))
    _check_distinct("tables.{}.name", (table.name for table in manifest.tables))
    _check_distinct("plans.{}", manifest.plans)
    _check_distinct("programs.{}.target", (program.target for program in manifest.programs))
    if not any(isinstance(program, ProgramSpec) for program in manifest.programs):
        raise _refuse("programs", "one of kind torchscript", "none")
    if manifest.default_plan not in manifest.plans:
        raise _refuse("default_plan", _one_of(manifest.plans), manifest.default_plan)
    first_sparse = len(manifest.dense)
    for place, spec in enumerate(manifest.inputs):
        expected = "dense" if place < first_sparse else "sparse"
        if spec.kind != expected:
            raise _refuse(f"inputs.{place}.kind", f"{expected} (dense inputs first)", spec.kind)


def _check_tables(manifest: Manifest) -> None:
    for place, table in enumerate(manifest.tables):
        where = f"tables.{place}"
        try:
            row_format = RowFormat(table.weights, table.dim)
        except InputError as error:
            # The message begins with the field: "dim: expected 1 .. 65536, got 65537".
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
    for place, spec in enumerate(manifest.inputs):
        if not isinstance(spec, SparseInputSpec):
            continue
        where = f"inputs.{place}"
        _check_oov(spec.ids, f"{where}.ids")
        for number, lookup in enumerate(spec.lookups):
            if lookup.table not in tables:
                raise _refuse(f"{where}.lookups.{number}.table", _one_of(tables), lookup.table)
            _check_lookup(spec, lookup, where, f"{where}.lookups.{number}")
            rows = tables[lookup.table].rows
            if spec.ids.rows != rows:
                expected = f"{rows}, the rows of table {lookup.table}"
                raise _refuse(f"{where}.ids.rows", expected, spec.ids.rows)


def _check_lookup(spec: SparseInputSpec, lookup: Lookup, where: str, field: str) -> None:
    if lookup.output == "pooled":
        if lookup.pooling is None:
            raise _refuse(f"{field}.pooling", "sum or mean if output is pooled", "null")
        return
    if lookup.pooling is not None:
        raise _refuse(f"{field}.pooling", "null if output is sequence", lookup.pooling)
    if spec.weighted:  # Weights only have an effect on pooled vectors.
        raise _refuse(f"{where}.weighted", "false if a lookup's output is sequence", "true")


def _check_oov(ids: Ids, where: str) -> None:
    if isinstance(ids, HashIds):
        return
    expected = ids.rows - 1 if ids.unknown == "oov" else None
    if ids.oov_row != expected:
        raise _refuse(
            f"{where}.oov_row",
            f"{'null' if expected is None else expected} if unknown is {ids.unknown}",
            "null" if ids.oov_row is None else ids.oov_row,
        )
    if expected == 0:
        raise _refuse(f"{where}.rows", "at least 2, since one is the oov row", ids.rows)


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
            raise _refuse(field, "one of the keys of files", file)
    seen: set[str] = set()
    for field, file in _named_files(manifest):
        # Only a vocabulary may be named twice, by inputs that share it.
        if file in seen and not field.endswith(".ids.file"):
            raise _refuse(field, "a file that no other field names", file)
        seen.add(file)


def _check_sizes(manifest: Manifest) -> None:
    """Limit the files that readers load into memory before they check them."""
    limits = {f"plans/{plan}.json": BYTES_MAX for plan in manifest.plans}
    limits[manifest.samples] = SAMPLES_BYTES_MAX
    for spec in manifest.sparse:
        if isinstance(spec.ids, VocabIds):
            # A key and a row of 8 bytes for each id, after the size and the header.
            limits[spec.ids.file] = known_ids(spec.ids) * 16 + 8 + HEADER_BYTES_MAX
    for file, bytes_max in limits.items():
        size = manifest.files[file].bytes
        if size > bytes_max:
            raise _refuse(f"files.{file}.bytes", f"at most {bytes_max}", size)


def _named_files(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield each field that names a file, and the file."""
    for place, table in enumerate(manifest.tables):
        for number, chunk in enumerate(table.chunks):
            yield f"tables.{place}.chunks.{number}", chunk
    for place, spec in enumerate(manifest.inputs):
        if isinstance(spec, SparseInputSpec) and spec.ids.kind == "vocab":
            yield f"inputs.{place}.ids.file", spec.ids.file
    for place, program in enumerate(manifest.programs):
        yield f"programs.{place}.file", program.file
    for place, plan in enumerate(manifest.plans):
        yield f"plans.{place}", f"plans/{plan}.json"
    yield "samples", manifest.samples


def _check_distinct(field: str, names: Iterable[str]) -> None:
    """Refuse a name that occurs twice. ``field``: path of a name, with {} for its position."""
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            raise _refuse(field.format(place), "distinct names", f"{name!r} twice")
        seen.add(name)


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names) or 'none'}"


def _refuse(field: str, expected: Any, got: Any) -> PackageError:
    return refusal(MANIFEST, field, expected=expected, got=got)
