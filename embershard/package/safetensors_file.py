"""Reads and writes safetensors files with data that can be mapped, and vocabularies in them.
docs/format.md, "Safetensors", describes the bytes of both."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, RootModel

from embershard.errors import PackageError
from embershard.package.id_maps import MAX_KEYS, UnknownIds, Vocabulary
from embershard.package.manifest_inputs import Part
from embershard.package.validation import parse_model, refusal

HEADER_BYTES_MAX: Final = 16 << 20

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "U8": np.dtype("u1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F32": np.dtype("<f4"),
}

_Size = Annotated[int, Field(ge=0, lt=1 << 48)]


class StoredTensor(Part):
    """The header entry of a tensor."""

    dtype: Literal["U8", "I32", "I64", "F32"]
    shape: Annotated[tuple[_Size, ...], Field(max_length=4, fail_fast=True)]
    data_offsets: tuple[_Size, _Size]

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class _Header(RootModel[dict[str, StoredTensor]]):
    pass


@final
@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """A file whose header has been read and checked. Data are mapped on demand."""

    path: Path

    file: str
    """Path inside the package, for error messages."""

    data_start: int
    tensors: Mapping[str, StoredTensor]

    @classmethod
    def open(cls, path: Path, file: str, *, align: int = 8) -> SafetensorsFile:
        """Read the header of ``path``. The data must start at a multiple of ``align``."""
        size = path.stat().st_size
        with path.open("rb") as stream:
            head = stream.read(8)
            if len(head) < 8:
                raise refusal(file, "header", expected="at least 8 bytes", got=f"{size}")
            (header_bytes,) = struct.unpack("<Q", head)
            room = min(size - 8, HEADER_BYTES_MAX)
            if not 2 <= header_bytes <= room:
                got = f"{header_bytes}"
                raise refusal(file, "header", expected=f"2 .. {room} bytes of header", got=got)
            parsed, _ = parse_model(_Header, stream.read(header_bytes), file)
        data_start = 8 + header_bytes
        if data_start % align:
            expected = f"data at a multiple of {align}"
            raise refusal(file, "header", expected=expected, got=f"{data_start}")
        opened = cls(path, file, data_start, parsed.root)
        opened._check_filled(size - data_start)
        return opened

    def _check_filled(self, data_bytes: int) -> None:
        end = 0
        for name, tensor in sorted(self.tensors.items(), key=lambda item: item[1].data_offsets):
            expected = [end, end + tensor.data_bytes]
            if list(tensor.data_offsets) != expected:
                field, got = f"{name}.data_offsets", list(tensor.data_offsets)
                raise refusal(self.file, field, expected=expected, got=got)
            end = expected[1]
        if end != data_bytes:
            expected_text = f"{end} bytes of data"
            raise refusal(self.file, "header", expected=expected_text, got=f"{data_bytes}")

    def check_names(self, names: list[str]) -> None:
        """Refuse a file with tensors of other names."""
        for name in sorted(self.tensors):
            if name not in names:
                raise PackageError(f"{self.file}: {name}: unexpected tensor")

    def tensor(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Map a tensor, read-only. It must have this dtype ("U8", "I32", "I64" or "F32") and
        shape. None in ``shape`` stands for any size."""
        expected = f"{dtype} [{', '.join('n' if size is None else str(size) for size in shape)}]"
        stored = self.tensors.get(name)
        if stored is None:
            raise refusal(self.file, name, expected=expected, got="no tensor")
        fits = len(shape) == len(stored.shape) and all(
            expected_size in (None, size)
            for expected_size, size in zip(shape, stored.shape, strict=True)
        )
        if stored.dtype != dtype or not fits:
            got = f"{stored.dtype} {list(stored.shape)}"
            raise refusal(self.file, name, expected=expected, got=got)
        if not stored.data_bytes:
            return np.empty(stored.shape, DTYPES[dtype])
        offset = self.data_start + stored.data_offsets[0]
        return np.memmap(self.path, DTYPES[dtype], "r", offset, stored.shape)


def encode_header(tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, align: int) -> bytes:
    """The bytes before the data, a multiple of ``align``. ``tensors``: dtype and shape by name, in
    the order of their data."""
    header, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * DTYPES[dtype].itemsize
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % align)
    return struct.pack("<Q", len(text)) + text


def safetensors_blocks(
    tensors: Mapping[str, NDArray[Any]], *, align: int = 8
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file with arrays of uint8, int32, int64 and float32. Arrays with the
    widest items come first, so that each starts at a multiple of its item size."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    yield encode_header(
        {name: (names[array.dtype.newbyteorder("<")], array.shape) for name, array in ordered},
        align=align,
    )
    for _, array in ordered:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        yield np.ascontiguousarray(little).data


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[Any]], *, align: int = 8) -> None:
    with path.open("wb") as stream:
        stream.writelines(safetensors_blocks(tensors, align=align))


def vocabulary_tensors(vocabulary: Vocabulary) -> dict[str, NDArray[Any]]:
    """The tensors of a vocabulary's file. The file does not hold the policy."""
    return {"keys": vocabulary.keys, "rows": vocabulary.rows}


def write_vocabulary(path: Path, vocabulary: Vocabulary) -> None:
    write_safetensors(path, vocabulary_tensors(vocabulary))


def read_vocabulary(
    path: Path, unknown: UnknownIds = "reject", *, file: str | None = None
) -> Vocabulary:
    """Map a vocabulary's file and check all of it. ``file`` names it in messages, by default the
    last part of ``path``. Raises PackageError if the file is damaged, its keys are out of order, or
    its rows are not each of 0 .. n - 1 once."""
    keys, rows = open_vocabulary(path, path.name if file is None else file)
    check_vocabulary(keys, rows, path.name if file is None else file)
    return Vocabulary.from_sorted(keys, rows, unknown)


def open_vocabulary(
    path: Path, file: str, *, ids: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Map keys and rows, each int64 ``[n]``, without reading them. ``ids`` is the expected n."""
    opened = SafetensorsFile.open(path, file)
    opened.check_names(["keys", "rows"])
    keys = opened.tensor("keys", "I64", (ids,))
    if not 1 <= len(keys) <= MAX_KEYS:
        raise refusal(file, "keys", expected=f"1 .. {MAX_KEYS} ids", got=f"{len(keys)}")
    return keys, opened.tensor("rows", "I64", (len(keys),))


def check_vocabulary(keys: NDArray[np.int64], rows: NDArray[np.int64], file: str) -> None:
    """Refuse keys that do not strictly increase, and rows that are not each of 0 .. n - 1 once."""
    falls = np.flatnonzero(keys[1:] <= keys[:-1])
    if len(falls):
        at = int(falls[0]) + 1
        got = f"{keys[at - 1]} before {keys[at]} at position {at}"
        raise refusal(file, "keys", expected="strictly increasing ids", got=got)
    outside = np.flatnonzero((rows < 0) | (rows >= len(rows)))
    if len(outside):
        at = int(outside[0])
        expected = f"rows of 0 .. {len(rows) - 1}"
        raise refusal(file, "rows", expected=expected, got=f"{rows[at]} at position {at}")
    seen = np.zeros(len(rows), np.bool_)
    seen[rows] = True
    if not seen.all():
        got = f"no id with row {int(np.argmin(seen))}"
        raise refusal(file, "rows", expected="every row once", got=got)
