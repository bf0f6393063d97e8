"""Opens packages, checking all but the contents of large files, or verifies every byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError, NotFoundError
from embershard.package.folder_checks import check_files, check_hash, read_manifest, read_settled
from embershard.package.id_maps import UnknownIds, Vocabulary
from embershard.package.input_specs import known_ids, schema_of
from embershard.package.manifest import CHUNK_ALIGN, Manifest, TableSpec
from embershard.package.manifest_inputs import VocabIds
from embershard.package.plan import Plan, parse_plan
from embershard.package.safetensors_file import SafetensorsFile, open_vocabulary, read_vocabulary
from embershard.package.samples import SampleRequest, check_samples, read_samples
from embershard.package.schema import Schema


@final
@dataclass(frozen=True, slots=True)
class Package:
    """An opened package. Files are mapped when they are needed, and never written."""

    path: Path
    manifest: Manifest
    plans: Mapping[str, Plan]

    @classmethod
    def open(cls, path: str | Path) -> Package:
        """Open the package in the folder ``path``. This checks the manifest and its digest, names
        and sizes of all files, the plans, and the headers of chunks and vocabularies.
        `verify_package` checks every byte. Another process may add a plan meanwhile. Raises
        PackageError, "<file>: <field>: expected ..., got ..."."""
        folder = Path(path)
        return read_settled(folder, lambda: cls._read(folder))

    @classmethod
    def _read(cls, folder: Path) -> Package:
        manifest = read_manifest(folder)
        check_files(folder, manifest)
        plans = {
            name: parse_plan((folder / f"plans/{name}.json").read_bytes(), name, manifest.tables)
            for name in manifest.plans
        }
        for table in manifest.tables:
            for number in range(len(table.chunks)):
                _open_chunk(folder, table, number)
        for spec in manifest.sparse:
            if isinstance(spec.ids, VocabIds):
                open_vocabulary(folder / spec.ids.file, spec.ids.file, ids=known_ids(spec.ids))
        return cls(folder, manifest, plans)

    def plan(self, name: str = "") -> Plan:
        """The plan with this name, or the default plan if the name is empty. Raises
        NotFoundError."""
        name = name or self.manifest.default_plan
        if name not in self.plans:
            raise NotFoundError(
                f"plan: expected one of {', '.join(self.manifest.plans)}, got {name!r}"
            )
        return self.plans[name]

    def read_rows(self, table: str, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Read stored rows of a table, int64 ``[N]`` in any order: uint8 ``[N, row_bytes]``, for
        `RowFormat.dequantize_rows`. Raises InputError if the table does not have such a row, and
        NotFoundError if there is no such table."""
        spec = self.manifest.table(table)
        if len(rows) and (rows.min() < 0 or rows.max() >= spec.rows):
            raise InputError(
                f"table {table}: expected rows of 0 .. {spec.rows - 1}, "
                f"got {rows.min()} .. {rows.max()}"
            )
        stored = np.empty((len(rows), spec.row_bytes), np.uint8)
        numbers = rows // spec.rows_per_chunk
        for number in np.unique(numbers):
            in_chunk = numbers == number
            chunk = _open_chunk(self.path, spec, int(number))
            stored[in_chunk] = chunk[rows[in_chunk] - number * spec.rows_per_chunk]
        return stored

    def vocabulary(self, file: str, unknown: UnknownIds = "reject") -> Vocabulary:
        """Read and check the vocabulary in ``file``. ``unknown``: policy for other ids."""
        return read_vocabulary(self.path / file, unknown, file=file)

    def schema(self) -> Schema:
        return schema_of(self.manifest.dense, self.manifest.sparse, self.vocabulary)

    def samples(self) -> list[SampleRequest]:
        """Read the package's sample requests, with the outputs that they must have."""
        file = self.manifest.samples
        samples = read_samples(self.path / file, file=file)
        check_samples(samples, self.manifest, file=file)
        return samples


def _open_chunk(folder: Path, table: TableSpec, number: int) -> NDArray[np.uint8]:
    file = table.chunks[number]
    rows = min(table.rows_per_chunk, table.rows - number * table.rows_per_chunk)
    opened = SafetensorsFile.open(folder / file, file, align=CHUNK_ALIGN)
    opened.check_names(["rows"])
    return opened.tensor("rows", "U8", (rows, table.row_bytes))


def verify_package(
    path: str | Path,
    *,
    hashes: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Package:
    """Check every rule of docs/format.md, and return the opened package. ``hashes`` also compares
    the digest of every file. ``progress`` is called after each file with the bytes hashed so far
    and the total bytes. Raises PackageError, "<file>: <field>: expected ..., got ..."."""
    folder = Path(path)
    if hashes:  # First, since for a damaged file a wrong digest is the clearest error.
        read_settled(folder, lambda: _check_hashes(folder, progress))
    package = Package.open(folder)
    sparse = package.manifest.sparse
    for file in dict.fromkeys(s.ids.file for s in sparse if isinstance(s.ids, VocabIds)):
        package.vocabulary(file)
    package.samples()
    return package


def _check_hashes(folder: Path, progress: Callable[[int, int], None] | None) -> None:
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    done, total = 0, sum(spec.bytes for spec in manifest.files.values())
    for file, spec in sorted(manifest.files.items()):
        check_hash(folder, file, spec)
        done += spec.bytes
        if progress is not None:
            progress(done, total)
