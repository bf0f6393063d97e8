"""Faults of the folder and its safetensors files: (case, file, field, damage)."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from tests.hostile.draft import Draft, safetensors

CHUNK = "tables/users/00000.safetensors"
IDS = "ids/user.safetensors"
SAMPLE_FILE = "samples.safetensors"


def flip_last_byte(file: str) -> Any:
    def damage(draft: Draft) -> None:
        data = bytearray((draft.folder / file).read_bytes())
        data[-1] ^= 1
        (draft.folder / file).write_bytes(data)

    return damage


def link(path: str) -> Any:
    """Moves a file or folder beside the package and leaves a symbolic link to it."""

    def damage(draft: Draft) -> None:
        moved = draft.folder.with_name(f"{draft.folder.name}-moved")
        (draft.folder / path).rename(moved)
        (draft.folder / path).symlink_to(moved)

    return damage


def pipe(draft: Draft) -> None:
    (draft.folder / CHUNK).unlink()
    os.mkfifo(draft.folder / CHUNK)


def unlisted(path: str) -> Any:
    return lambda draft: (draft.folder / path).write_bytes(b"x")


def cut(file: str, size: int) -> Any:
    return lambda draft: draft.replace(file, (draft.folder / file).read_bytes()[:size])


def header_size(number: int) -> Any:
    def damage(draft: Draft) -> None:
        data = (draft.folder / CHUNK).read_bytes()
        draft.replace(CHUNK, number.to_bytes(8, "little") + data[8:])

    return damage


def header_text(text: bytes) -> Any:
    return lambda d: d.replace(CHUNK, safetensors(text, d.tensors(CHUNK)[1], align=4096))


def header(file: str, *path: str, value: Any, align: int = 4096) -> Any:
    """Sets one value of a header."""

    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    return lambda draft: draft.edit_header(file, edit, align=align)


def integers(tensor: str, values: list[int]) -> Any:
    """Other keys or rows for the vocabulary."""
    return lambda draft: draft.edit_data(IDS, tensor, np.array(values, "<i8").tobytes())


def sample(tensor: str, shape: list[int], dtype: str) -> Any:
    """Another shape for one tensor of the samples, filled with ones."""
    ones = np.ones(shape, dtype).tobytes()
    return lambda draft: draft.resize_tensor(SAMPLE_FILE, tensor, shape, ones)


def rename_tensor(file: str, old: str, new: str, align: int = 8) -> Any:
    def edit(document: dict[str, Any]) -> None:
        document[new] = document.pop(old)

    return lambda draft: draft.edit_header(file, edit, align=align)


def fewer_ids(draft: Draft) -> None:
    three = np.arange(3, dtype="<i8").tobytes()
    names = {"keys": [0, 24], "rows": [24, 48]}
    entries = {n: {"dtype": "I64", "shape": [3], "data_offsets": o} for n, o in names.items()}
    draft.replace(IDS, safetensors(json.dumps(entries).encode(), three + three, align=8))


def no_samples(draft: Draft) -> None:
    draft.replace(SAMPLE_FILE, safetensors(b"{}", b"", align=8))


FOLDER = [
    ("file-missing", CHUNK, "file", lambda d: (d.folder / CHUNK).unlink()),
    ("file-unexpected", "tables/extra.bin", "file", unlisted("tables/extra.bin")),
    ("file-unexpected-and-hidden", ".extra", "file", unlisted(".extra")),
    ("file-is-a-link", CHUNK, "file", link(CHUNK)),
    ("folder-is-a-link", "tables", "file", link("tables")),
    ("manifest-is-a-link", "manifest.json", "file", link("manifest.json")),
    ("file-is-a-pipe", CHUNK, "file", pipe),
    ("size-too-long", CHUNK, "bytes", lambda d: os.truncate(d.folder / CHUNK, 5000)),
    ("size-too-short", CHUNK, "bytes", lambda d: os.truncate(d.folder / CHUNK, 4100)),
    ("hash-of-rows-wrong", CHUNK, "sha256", flip_last_byte(CHUNK)),
    ("hash-of-program-wrong", "programs/dense.pt", "sha256", flip_last_byte("programs/dense.pt")),
    ("hash-of-plan-wrong", "plans/halves.json", "sha256", flip_last_byte("plans/halves.json")),
]

SAFETENSORS = [
    ("chunk-empty", CHUNK, "header", cut(CHUNK, 0)),
    ("chunk-ends-in-its-first-number", CHUNK, "header", cut(CHUNK, 7)),
    ("chunk-ends-in-its-header", CHUNK, "header", cut(CHUNK, 100)),
    ("chunk-ends-in-its-rows", CHUNK, "header", cut(CHUNK, 4100)),
    ("chunk-header-beyond-the-file", CHUNK, "header", header_size(5000)),
    ("chunk-header-of-2-to-the-63", CHUNK, "header", header_size(1 << 63)),
    ("chunk-header-of-2-to-the-64-less-8", CHUNK, "header", header_size((1 << 64) - 8)),
    ("chunk-header-empty", CHUNK, "header", header_size(0)),
    ("chunk-header-no-json", CHUNK, "json", header_text(b"rows")),
    (
        "chunk-header-key-twice",
        CHUNK,
        "json",
        header_text(
            b'{"rows":{"dtype":"U8","shape":[5,8],"data_offsets":[0,40]},'
            b'"rows":{"dtype":"U8","shape":[5,8],"data_offsets":[0,40]}}'
        ),
    ),
    (
        "chunk-data-off-the-page",
        CHUNK,
        "header",
        lambda d: d.edit_header(CHUNK, lambda _: None, align=8),
    ),
    (
        "chunk-data-behind-the-rows",
        CHUNK,
        "header",
        lambda d: d.replace(CHUNK, (d.folder / CHUNK).read_bytes() + b"x"),
    ),
    ("chunk-rows-of-another-type", CHUNK, "rows", header(CHUNK, "rows", "dtype", value="BOOL")),
    ("chunk-rows-of-another-shape", CHUNK, "rows", header(CHUNK, "rows", "shape", value=[8, 5])),
    ("chunk-rows-of-one-dimension", CHUNK, "rows", header(CHUNK, "rows", "shape", value=[40])),
    ("chunk-rows-too-many", CHUNK, "rows", header(CHUNK, "rows", "shape", value=[6, 8])),
    ("chunk-shape-negative", CHUNK, "rows", header(CHUNK, "rows", "shape", value=[-5, -8])),
    (
        "chunk-shape-that-overflows",
        CHUNK,
        "rows",
        header(CHUNK, "rows", "shape", value=[1 << 62, 1 << 62]),
    ),
    (
        "chunk-offsets-beyond-the-file",
        CHUNK,
        "rows",
        header(CHUNK, "rows", "data_offsets", value=[4096, 4136]),
    ),
    (
        "chunk-offsets-backwards",
        CHUNK,
        "rows",
        header(CHUNK, "rows", "data_offsets", value=[40, 0]),
    ),
    ("chunk-entry-with-unknown-key", CHUNK, "rows", header(CHUNK, "rows", "unit", value="byte")),
    ("chunk-metadata", CHUNK, "__metadata__", header(CHUNK, "__metadata__", value={"a": "b"})),
    ("chunk-tensor-of-another-name", CHUNK, "row", rename_tensor(CHUNK, "rows", "row", 4096)),
    (
        "chunk-tensor-unexpected",
        CHUNK,
        "extra",
        header(CHUNK, "extra", value={"dtype": "U8", "shape": [0], "data_offsets": [40, 40]}),
    ),
]

VOCABULARIES = [
    ("ids-unsorted", IDS, "keys", integers("keys", [1, 3, 2, 4])),
    ("ids-sorted-as-if-unsigned", IDS, "keys", integers("keys", [1, 2, -2, -1])),
    ("ids-twice", IDS, "keys", integers("keys", [1, 2, 2, 4])),
    ("ids-row-twice", IDS, "rows", integers("rows", [0, 1, 1, 3])),
    ("ids-row-outside", IDS, "rows", integers("rows", [0, 1, 2, 4])),
    ("ids-row-negative", IDS, "rows", integers("rows", [0, 1, 2, -1])),
    ("ids-too-few", IDS, "keys", fewer_ids),
    ("ids-of-another-type", IDS, "keys", header(IDS, "keys", "dtype", value="F32", align=8)),
    (
        "ids-overlapping-rows",
        IDS,
        "rows",
        header(IDS, "rows", "data_offsets", value=[0, 32], align=8),
    ),
    ("ids-without-rows", IDS, "row", rename_tensor(IDS, "rows", "row")),
]

SAMPLES = [
    ("samples-none", SAMPLE_FILE, "0/", no_samples),
    (
        "samples-dense-too-wide",
        SAMPLE_FILE,
        "0/request_dense",
        sample("0/request_dense", [2], "f4"),
    ),
    (
        "samples-dense-of-one-dimension",
        SAMPLE_FILE,
        "0/example_dense",
        sample("0/example_dense", [3], "f4"),
    ),
    ("samples-lengths-too-few", SAMPLE_FILE, "0/lengths", sample("0/lengths", [4], "i4")),
    (
        "samples-length-negative",
        SAMPLE_FILE,
        "0/lengths",
        lambda d: d.edit_data(
            SAMPLE_FILE, "0/lengths", np.array([1, 3, -1, 5, 2], "<i4").tobytes()
        ),
    ),
    ("samples-values-too-many", SAMPLE_FILE, "0/values", sample("0/values", [11], "i8")),
    ("samples-weights-too-few", SAMPLE_FILE, "0/weights", sample("0/weights", [2], "f4")),
    (
        "samples-output-too-short",
        SAMPLE_FILE,
        "0/output/score",
        sample("0/output/score", [2], "f4"),
    ),
    (
        "samples-output-unknown",
        SAMPLE_FILE,
        "0/output/",
        rename_tensor(SAMPLE_FILE, "0/output/score", "0/output/rank"),
    ),
    (
        "samples-part-unknown",
        SAMPLE_FILE,
        "0/length",
        rename_tensor(SAMPLE_FILE, "0/lengths", "0/length"),
    ),
    (
        "samples-number-unknown",
        SAMPLE_FILE,
        "01/lengths",
        rename_tensor(SAMPLE_FILE, "1/lengths", "01/lengths"),
    ),
]
