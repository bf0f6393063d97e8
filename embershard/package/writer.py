"""Writes a package into a hidden folder, and then renames it atomically.

    <repository>/<model>/.<version>.<random>.partial/    1. written and flushed to disk here
    <repository>/<model>/<version>/                      2. renamed

A process that dies may leave the hidden folder. Nothing reads it, and it may be deleted.
"""

import math
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError
from embershard.package.files import (
    HashedStream,
    exchange,
    link_or_copy,
    room_error,
    room_needed,
    seal,
    sync,
    sync_tree,
)
from embershard.package.id_maps import Vocabulary
from embershard.package.manifest import (
    CHUNK_ALIGN,
    CHUNK_BYTES_MAX,
    FORMAT_VERSION,
    FileSpec,
    Limits,
    OutputSpec,
    Producer,
    ProgramSpec,
    TableSpec,
    fingerprint_of,
)
from embershard.package.manifest_inputs import InputSpec
from embershard.package.names import FILE_PATTERN, NAME_PATTERN, PATTERN_WORDS
from embershard.package.plan import Plan, plan_json
from embershard.package.reader import verify_package
from embershard.package.row_format import RowFormat
from embershard.package.safetensors_file import (
    encode_header,
    safetensors_blocks,
    vocabulary_tensors,
)
from embershard.package.samples import SampleRequest, sample_tensors

SAMPLES: Final = "samples.safetensors"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PackageContents:
    """The values of a manifest, without the list of files, which `PackageWriter` knows."""

    model: str
    version: int
    producer: Producer
    inputs: Sequence[InputSpec]
    outputs: Sequence[OutputSpec]
    tables: Sequence[TableSpec]
    """Results of `PackageWriter.write_table`, with `TableSpec.with_error`."""

    programs: Sequence[ProgramSpec]

    plans: Sequence[str]
    """Names of the plans. The first is the default."""

    limits: Limits


@final
class PackageWriter:
    """Writes a package. Use it in a ``with`` statement, which removes an unpublished package.

    Args:
        out: folder of the package, ``<repository>/<model>/<version>``. Its parents are created.
        chunk_bytes_max: size limit of a table's chunks, at most 1 GiB.
        replace: replace the package at ``out``. The caller holds that folder's lock.

    Raises:
        InputError: ``out`` exists and ``replace`` is False, since versions are immutable. The
            ``with`` statement also raises it if the disk is full.
    """

    def __init__(
        self, out: Path, *, chunk_bytes_max: int = CHUNK_BYTES_MAX, replace: bool = False
    ) -> None:
        self._out, self._replace = Path(out), replace
        self._chunk_bytes_max = chunk_bytes_max
        self._published = False
        self._files: dict[str, FileSpec] = {}
        self._check_free()
        with room_needed(self._out):
            self._out.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{self._out.name}."
            self._folder = Path(
                tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=self._out.parent)
            )
        # A server may run as another user, who could not read mkdtemp's mode 0700.
        self._folder.chmod(self._out.stat().st_mode & 0o7777 if replace else 0o755)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # After a replacement, this is the folder of the old package.
        if not self._published or self._replace:
            shutil.rmtree(self._folder)
        if isinstance(error, OSError):
            if full := room_error(self._out, error):
                raise full from error
            if error.errno is not None and error.filename is None:
                error.filename = str(self._out)

    def path(self, file: str) -> Path:
        """Path of a file of the package until the package is published."""
        return self._folder / file

    def files(self) -> dict[str, FileSpec]:
        """Size and digest of each written file, by its path inside the package."""
        return dict(sorted(self._files.items(), key=lambda item: item[0].split("/")))

    @contextmanager
    def open_file(self, file: str) -> Iterator[HashedStream]:
        """Open a new file of the package to write it. Raises InputError for a used or bad path."""
        with self._new_path(file).open("xb") as stream:
            hashed = HashedStream(stream)
            yield hashed
        self._files[file] = hashed.spec()

    def add_file(self, file: str, data: bytes) -> None:
        with self.open_file(file) as stream:
            stream.write(data)

    def link_file(self, file: str, source: Path, spec: FileSpec) -> None:
        """Link a file of another package into this one. ``spec``: its size and digest."""
        link_or_copy(source, self._new_path(file))
        self._files[file] = spec

    def _new_path(self, file: str) -> Path:
        if not re.fullmatch(FILE_PATTERN, file):
            raise InputError(f"file: expected {PATTERN_WORDS[FILE_PATTERN]}, got {file!r}")
        path = self.path(file)
        if path.exists():
            raise InputError(f"{file}: expected a file that is written once, got it twice")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _add_tensors(self, file: str, tensors: Mapping[str, NDArray[Any]]) -> None:
        with self.open_file(file) as stream:
            for block in safetensors_blocks(tensors):
                stream.write(block)

    def add_vocabulary(self, file: str, vocabulary: Vocabulary) -> str:
        """Write a vocabulary to ids/``file``, and return that path."""
        self._add_tensors(path := f"ids/{file}", vocabulary_tensors(vocabulary))
        return path

    def add_plan(self, plan: Plan) -> str:
        """Write plans/<name>.json, and return that path."""
        self.add_file(file := f"plans/{plan.name}.json", plan_json(plan))
        return file

    def add_samples(self, samples: Sequence[SampleRequest]) -> None:
        self._add_tensors(SAMPLES, sample_tensors(samples))

    def write_table(
        self,
        name: str,
        row_format: RowFormat,
        row_batches: Iterable[NDArray[np.uint8]],
        *,
        rows: int,
    ) -> TableSpec:
        """Write a table in chunks, without holding all of its rows in memory. ``row_batches`` are
        the rows in order, each batch uint8 ``[any, row_bytes]``. Returns the manifest's spec of the
        table, whose errors are 0 until `TableSpec.with_error` sets them. Raises
        InputError for an invalid name, a batch of another dtype or width, or another number of rows
        than ``rows``, at least 1."""
        if not re.fullmatch(NAME_PATTERN, name):
            raise InputError(f"table: expected {PATTERN_WORDS[NAME_PATTERN]}, got {name!r}")
        if not rows:
            raise InputError(f"table {name}: expected at least one row, got none")
        row_bytes = row_format.row_bytes
        unit = CHUNK_ALIGN // math.gcd(CHUNK_ALIGN, row_bytes)  # Rows that fill whole pages.
        rows_max = max(1, self._chunk_bytes_max // (unit * row_bytes)) * unit
        rows_per_chunk = min(rows_max, -(-rows // unit) * unit)
        parts = _split_at_chunks(name, row_bytes, row_batches, rows_per_chunk, rows=rows)
        chunks: list[str] = []
        for start in range(0, rows, rows_per_chunk):
            chunks.append(f"tables/{name}/{len(chunks):05d}.safetensors")
            left = min(rows_per_chunk, rows - start)
            with self.open_file(chunks[-1]) as stream:
                shape = {"rows": ("U8", (left, row_bytes))}
                stream.write(encode_header(shape, align=CHUNK_ALIGN))
                while left:
                    part = next(parts)
                    stream.write(np.ascontiguousarray(part).data)
                    left -= len(part)
        for _ in parts:  # The generator raises an error if there are more rows.
            pass
        return TableSpec(
            name=name,
            rows=rows,
            dim=row_format.dim,
            weights=row_format.weights,
            row_bytes=row_bytes,
            rows_per_chunk=rows_per_chunk,
            chunks=tuple(chunks),
            mse=0.0,
            max_error=0.0,
        )

    def publish(self, contents: PackageContents) -> Path:
        """Write the manifest, verify the package, flush it to disk and rename it to ``out``. Raises
        PackageError if the contents and the files contradict one another, and InputError if another
        process has created ``out``."""
        return self.publish_document(self._document(contents))

    def publish_document(self, document: Mapping[str, Any]) -> Path:
        """`publish` with the JSON values of a manifest, whose ``files`` lists all written files."""
        seal(self._folder, document)
        # The digests were computed while the files were written.
        verify_package(self._folder, hashes=False)
        sync_tree(self._folder)
        self._check_free()
        try:
            (exchange if self._replace else Path.rename)(self._folder, self._out)
        except OSError as error:
            self._check_free()  # If another writer was faster, this error is clearer.
            raise error
        if not self._replace:
            self._folder = self._out
        sync(self._out.parent)
        self._published = True
        return self._out

    def _check_free(self) -> None:
        if not self._replace and (self._out.exists() or self._out.is_symlink()):
            raise InputError(
                f"{self._out}: expected a new version, got one that exists; versions are immutable"
            )

    def _document(self, contents: PackageContents) -> dict[str, Any]:
        inputs = [spec.model_dump() for spec in contents.inputs]
        outputs = [output.model_dump() for output in contents.outputs]
        return {
            "format_version": FORMAT_VERSION,
            "model": contents.model,
            "version": contents.version,
            "producer": contents.producer.model_dump(),
            "schema": fingerprint_of(inputs, outputs),
            "inputs": inputs,
            "outputs": outputs,
            "tables": [table.model_dump() for table in contents.tables],
            "programs": [program.model_dump() for program in contents.programs],
            "plans": list(contents.plans),
            "default_plan": contents.plans[0],
            "limits": contents.limits.model_dump(),
            "samples": SAMPLES,
            "files": {file: spec.model_dump() for file, spec in self.files().items()},
        }


def _split_at_chunks(
    name: str,
    row_bytes: int,
    batches: Iterable[NDArray[np.uint8]],
    rows_per_chunk: int,
    *,
    rows: int,
) -> Iterator[NDArray[np.uint8]]:
    """Yield the batches' rows, cut at the ends of chunks. Raises InputError for wrong batches."""
    done = 0
    for batch in batches:
        if batch.dtype != np.uint8 or batch.ndim != 2 or batch.shape[1] != row_bytes:
            raise InputError(
                f"table {name}: expected uint8 [n, {row_bytes}], "
                f"got {batch.dtype.name} {list(batch.shape)}"
            )
        if done + len(batch) > rows:
            raise InputError(
                f"table {name}: expected {rows} rows, got at least {done + len(batch)}"
            )
        while len(batch):
            left = rows_per_chunk - done % rows_per_chunk  # Free rows of the current chunk.
            part, batch = batch[:left], batch[left:]
            yield part
            done += len(part)
    if done < rows:
        raise InputError(f"table {name}: expected {rows} rows, got {done}")
