"""A copy of the golden package to be damaged, with its digests set right again where asked."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

GOLDEN = Path(__file__).parent.parent / "golden" / "format_0" / "tiny" / "1"
NARROW = Path(__file__).parent.parent / "golden" / "format_0_narrow" / "narrow" / "1"
"""The golden package whose rows are padded."""


class Draft:
    """A package's folder, and the means to change it."""

    def __init__(self, folder: Path, golden: Path = GOLDEN) -> None:
        shutil.copytree(golden, folder)
        self.folder = folder

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_bytes())

    def write_manifest(self, data: bytes) -> None:
        """Any bytes as manifest.json, with the digest that belongs to them."""
        (self.folder / "manifest.json").write_bytes(data)
        line = f"{hashlib.sha256(data).hexdigest()}  manifest.json\n"
        (self.folder / "manifest.sha256").write_text(line)

    def edit_manifest(
        self, edit: Callable[[dict[str, Any]], object], *, fingerprint: bool = True
    ) -> None:
        """Changes the manifest's values; its fingerprint and digest are right afterwards."""
        document = self.manifest()
        edit(document)
        if fingerprint and {"inputs", "outputs"} <= document.keys():
            schema = {"inputs": document["inputs"], "outputs": document["outputs"]}
            text = json.dumps(
                schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False
            ).encode("utf-8", "surrogatepass")
            document["schema"] = xxhash.xxh3_64_hexdigest(text)
        self.write_manifest(json.dumps(document).encode())

    def replace(self, file: str, data: bytes) -> None:
        """Other bytes for a file, with the size and digest that belong to them."""
        (self.folder / file).write_bytes(data)
        spec = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.edit_manifest(lambda document: document["files"].update({file: spec}))

    def edit_json(self, file: str, edit: Callable[[dict[str, Any]], object]) -> None:
        """Changes the values of a JSON file."""
        document = json.loads((self.folder / file).read_bytes())
        edit(document)
        self.replace(file, json.dumps(document).encode())

    def tensors(self, file: str) -> tuple[dict[str, Any], bytes]:
        """Header and data of a safetensors file."""
        data = (self.folder / file).read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        return json.loads(data[8 : 8 + size]), data[8 + size :]

    def edit_header(
        self, file: str, edit: Callable[[dict[str, Any]], object], *, align: int = 4096
    ) -> None:
        """Changes the header of a safetensors file and leaves its data."""
        header, data = self.tensors(file)
        edit(header)
        self.replace(file, safetensors(json.dumps(header).encode(), data, align=align))

    def edit_data(self, file: str, tensor: str, values: bytes, *, align: int = 8) -> None:
        """Other values of the same size for one tensor."""
        header, data = self.tensors(file)
        begin, end = header[tensor]["data_offsets"]
        assert len(values) == end - begin
        changed = data[:begin] + values + data[end:]
        self.replace(file, safetensors(json.dumps(header).encode(), changed, align=align))

    def resize_tensor(self, file: str, tensor: str, shape: list[int], values: bytes) -> None:
        """Another shape and other values for one tensor; the rest moves to make room."""
        header, data = self.tensors(file)
        pieces = {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()}
        pieces[tensor], header[tensor]["shape"] = values, shape
        at, changed = 0, b""
        for name, entry in header.items():
            entry["data_offsets"] = [at, at + len(pieces[name])]
            at += len(pieces[name])
            changed += pieces[name]
        self.replace(file, safetensors(json.dumps(header).encode(), changed, align=8))


def safetensors(header: bytes, data: bytes, *, align: int) -> bytes:
    """A file of that header, padded, and that data."""
    header += b" " * (-(8 + len(header)) % align)
    return struct.pack("<Q", len(header)) + header + data
