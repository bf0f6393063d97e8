"""Opens a package: everything checked but the contents of large files, or every byte."""

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
    """An opened package. Files are mapped as they are needed; nothing is ever written."""

    path: Path
    manifest: Manifest
    plans: Mapping[str, Plan]

    @classmethod
    def open(cls, path: str | Path) -> Package:
        """Opens the package in the folder ``path``.

        Checked are the manifest and its digest, the files there are and their sizes, the plans,
        and the headers of chunks and vocabularies. `verify_package` checks every byte. A plan may
        be added meanwhile.

        Raises:
            PackageError: "<file>: <field>: expected ..., got ...".
        """
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
        for each in manifest.sparse:
            if isinstance(each.ids, VocabIds):
                open_vocabulary(folder / each.ids.file, each.ids.file, ids=known_ids(each.ids))
        return cls(folder, manifest, plans)

    def plan(self, name: str = "") -> Plan:
        """The plan of that name; the default one where no name is given.

        Raises:
            NotFoundError: there is none.
        """
        name = name or self.manifest.default_plan
        if name not in self.plans:
            raise NotFoundError(
                f"plan: expected one of {', '.join(self.manifest.plans)}, got {name!r}"
            )
        return self.plans[name]

    def read_rows(self, table: str, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Stored rows of a table.

        Args:
            table: its name.
            rows: int64 ``[N]``, each 0 .. rows - 1, in any order.

        Returns:
            uint8 ``[N, row_bytes]``. `RowFormat.dequantize_rows` reads them.

        Raises:
            InputError: a row that the table does not have.
            NotFoundError: no such table.
        """
        spec = self.manifest.table(table)
        if len(rows) and (rows.min() < 0 or rows.max() >= spec.rows):
            raise InputError(
                f"table {table}: expected rows of 0 .. {spec.rows - 1}, "
                f"got {rows.min()} .. {rows.max()}"
            )
        found = np.empty((len(rows), spec.row_bytes), np.uint8)
        numbers = rows // spec.rows_per_chunk
        for number in np.unique(numbers):
            here = numbers == number
            chunk = _open_chunk(self.path, spec, int(number))
            found[here] = chunk[rows[here] - number * spec.rows_per_chunk]
        return found

    def vocabulary(self, file: str, unknown: UnknownIds = "reject") -> Vocabulary:
        """The vocabulary in ``file``, checked whole, with a policy of the caller's choice."""
        return read_vocabulary(self.path / file, unknown, file=file)

    def schema(self) -> Schema:
        """What the model is asked with, id maps included."""
        return schema_of(self.manifest.dense, self.manifest.sparse, self.vocabulary)

    def samples(self) -> list[SampleRequest]:
        """The requests kept in the package, with the outputs they must give."""
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
    """Checks all that docs/format.md asks of a package.

    Args:
        path: the package's folder.
        hashes: whether to compare the digest of every file too.
        progress: called with the bytes hashed so far and the bytes in all, after each file.

    Returns:
        The opened package.

    Raises:
        PackageError: "<file>: <field>: expected ..., got ...".
    """
    folder = Path(path)
    if hashes:  # First: of a damaged file, its digest says more than what it happens to hold.
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
