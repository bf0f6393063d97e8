"""Faults of manifest.json: (case, file, field, damage)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.hostile.draft import Draft

FILE = "manifest.json"
NOTHING = object()


def put(*path: str | int, value: Any) -> Callable[[Draft], None]:
    """Sets one value of the manifest, or takes it away."""

    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        if value is NOTHING:
            del document[path[-1]]
        elif isinstance(document, list) and path[-1] == len(document):
            document.append(value)
        else:
            document[path[-1]] = value

    fingerprint = path != ("schema",)
    return lambda draft: draft.edit_manifest(edit, fingerprint=fingerprint)


def field(case: str, *path: str | int, value: Any, at: str = "") -> tuple[Any, ...]:
    """A case that sets one value, and is refused for that field or for the one ``at``."""
    return case, FILE, at or ".".join(map(str, path)), put(*path, value=value)


def transforms(case: str, *, value: Any, at: str) -> tuple[Any, ...]:
    """A case that gives an input transforms, and is refused for what lies ``at`` below them."""
    return field(case, "inputs", 0, "transforms", value=value, at=f"inputs.0.transforms{at}")


COMPILED = {
    "kind": "aotinductor",
    "target": "x86_64-avx2",
    "dtype": "bfloat16",
    "torch": "2.13.0",
    "instructions": ["avx2", "fma"],
    "file": "samples.safetensors",  # Any file that is listed.
}


def compiled_program(case: str, **wrong: Any) -> tuple[Any, ...]:
    """A case that adds a compiled program with one wrong key, and is refused for that."""
    (key,) = wrong
    program = {name: value for name, value in {**COMPILED, **wrong}.items() if value is not NOTHING}
    return field(case, "programs", 1, value=program, at=f"programs.1.{key}")


def text(old: bytes, new: bytes) -> Callable[[Draft], None]:
    """Replaces bytes of manifest.json."""

    def damage(draft: Draft) -> None:
        data = (draft.folder / FILE).read_bytes()
        assert data.count(old) >= 1
        draft.write_manifest(data.replace(old, new, 1))

    return damage


def raw(data: bytes) -> Callable[[Draft], None]:
    return lambda draft: draft.write_manifest(data)


def again(name: str, place: int) -> Callable[[Draft], None]:
    """Appends a copy of an element of a list."""

    def edit(document: dict[str, Any]) -> None:
        document[name].append(copy.deepcopy(document[name][place]))

    return lambda draft: draft.edit_manifest(edit)


def rename_file(old: str, new: str) -> Callable[[Draft], None]:
    """Lists a file under another name, where nothing lies."""

    def edit(document: dict[str, Any]) -> None:
        document["files"][new] = document["files"].pop(old)

    return lambda draft: draft.edit_manifest(edit)


DIGESTS = [
    (
        "digest-missing",
        "manifest.sha256",
        "file",
        lambda draft: (draft.folder / "manifest.sha256").unlink(),
    ),
    (
        "digest-of-another-manifest",
        FILE,
        "sha256",
        lambda draft: (draft.folder / FILE).write_bytes((draft.folder / FILE).read_bytes() + b"\n"),
    ),
    (
        "digest-without-name",
        "manifest.sha256",
        "sha256",
        lambda draft: (draft.folder / "manifest.sha256").write_text("0" * 64 + "\n"),
    ),
    (
        "digest-in-capitals",
        "manifest.sha256",
        "sha256",
        lambda draft: (draft.folder / "manifest.sha256").write_text("A" * 64 + "  manifest.json\n"),
    ),
    ("manifest-missing", FILE, "file", lambda draft: (draft.folder / FILE).unlink()),
]

JSON = [
    ("json-empty", FILE, "json", raw(b"")),
    ("json-cut", FILE, "json", raw(b'{"format_version": 0, ')),
    ("json-array", FILE, "json", raw(b"[]")),
    ("json-not-utf8", FILE, "json", text(b'"tiny"', b'"tin\xff"')),
    ("json-overlong-utf8", FILE, "json", text(b'"tiny"', b'"tin\xc0\xaf"')),
    ("json-byte-order-mark", FILE, "json", text(b"{", b"\xef\xbb\xbf{")),
    ("json-trailing-comma", FILE, "json", text(b'"version": 1,', b'"version": 1,,')),
    ("json-comment", FILE, "json", text(b'"version": 1,', b'"version": 1, // one\n')),
    ("json-two-values", FILE, "json", lambda d: text(b"{", b"{} {")(d)),
    ("json-key-twice", FILE, "json", text(b'"version": 1,', b'"version": 1, "version": 1,')),
    ("json-inner-key-twice", FILE, "json", text(b'"rows": 5,', b'"rows": 5, "rows": 5,')),
    ("json-nan", FILE, "json", text(b'"mse": 0.0', b'"mse": NaN')),
    ("json-infinity", FILE, "json", text(b'"mse": 0.0', b'"mse": 1e999')),
    ("json-huge-integer", FILE, "json", text(b'"rows": 5,', b'"rows": 1' + b"0" * 30 + b",")),
    ("json-2-to-the-64", FILE, "json", text(b'"rows": 5,', b'"rows": 18446744073709551616,')),
    (
        "json-below-minus-2-to-the-63",
        FILE,
        "json",
        text(b'"rows": 5,', b'"rows": -9223372036854775809,'),
    ),
    ("json-leading-zero", FILE, "json", text(b'"version": 1,', b'"version": 01,')),
    ("json-zero-byte", FILE, "json", raw(b"{}\0[")),
    ("json-endless-integer", FILE, "json", text(b'"rows": 5,', b'"rows": ' + b"9" * 9999 + b",")),
    ("json-deep", FILE, "json", raw(b"[" * 100_000)),
    ("json-deep-and-closed", FILE, "json", raw(b'{"a":' * 1000 + b"0" + b"}" * 1000)),
    ("json-half-a-surrogate", FILE, "json", text(b'"tiny"', b'"tin\\ud800"')),
]

FIELDS = [
    field("version-unknown", "format_version", value=1),
    field("version-false", "format_version", value=False),
    field("version-fraction", "format_version", value=0.0),
    field("version-missing", "format_version", value=NOTHING),
    field("key-unknown", "surprise", value=1),
    field("key-unknown-inside", "inputs", 2, "ids", "surprise", value=1),
    field("key-missing", "limits", value=NOTHING),
    field("key-missing-inside", "tables", 0, "dim", value=NOTHING),
    field("null-where-none-may-be", "samples", value=None),
    field("object-where-list-belongs", "tables", value={}),
    field("model-name-is-a-path", "model", value="../tiny"),
    field("model-version-zero", "version", value=0),
    field("fingerprint-of-another-schema", "schema", value="0" * 16),
    field("fingerprint-too-short", "schema", value="abc"),
    field("input-kind-unknown", "inputs", 2, "kind", value="sequence"),
    field("input-kind-missing", "inputs", 2, "kind", value=NOTHING),
    field("input-without-name", "inputs", 0, "name", value=""),
    field("input-name-too-long", "inputs", 0, "name", value="ä" * 129),
    field("input-name-with-newline", "inputs", 0, "name", value="a\nb"),
    field("input-scope-unknown", "inputs", 0, "scope", value="user"),
    field("input-default-too-large", "inputs", 1, "default", value=1e15),
    field("input-default-text", "inputs", 1, "default", value="0"),
    transforms("no-transforms", value=[], at=""),
    transforms("transform-unknown", value=[{"kind": "sqrt"}], at=".0.kind"),
    transforms("transform-with-more", value=[{"kind": "log1p", "base": 2}], at=".0.base"),
    transforms("clip-without-high", value=[{"kind": "clip", "low": 0}], at=".0.high"),
    transforms("clip-of-nothing", value=[{"kind": "clip", "low": 2, "high": 2}], at=".0"),
    transforms("clip-too-large", value=[{"kind": "clip", "low": 0, "high": 1e15}], at=".0.high"),
    transforms(
        "deviation-zero",
        value=[{"kind": "log1p"}, {"kind": "standardize", "mean": 0, "deviation": 0}],
        at=".1.deviation",
    ),
    transforms(
        "boundaries-equal",
        value=[{"kind": "bucketize", "boundaries": [0, 1, 1]}],
        at=".0.boundaries",
    ),
    transforms(
        "no-boundaries", value=[{"kind": "bucketize", "boundaries": []}], at=".0.boundaries"
    ),
    field("max-ids-negative", "inputs", 2, "max_ids", value=-1),
    field("max-ids-2-to-the-31", "inputs", 2, "max_ids", value=1 << 31),
    field("keep-unknown", "inputs", 2, "keep", value="middle"),
    field("weighted-number", "inputs", 2, "weighted", value=0),
    field("ids-kind-unknown", "inputs", 2, "ids", "kind", value="tree"),
    field("ids-rows-text", "inputs", 2, "ids", "rows", value="5"),
    field("ids-rows-fraction", "inputs", 2, "ids", "rows", value=5.0),
    field("ids-unknown-unknown", "inputs", 2, "ids", "unknown", value="guess"),
    field("ids-seed-negative", "inputs", 3, "ids", "seed", value=-1),
    field("ids-file-of-another-kind", "inputs", 3, "ids", "file", value="ids/user.safetensors"),
    field("lookups-empty", "inputs", 2, "lookups", value=[]),
    field("lookup-output-unknown", "inputs", 2, "lookups", 0, "output", value="jagged"),
    field(
        "sequence-with-pooling",
        *("inputs", 2, "lookups", 0, "output"),
        value="sequence",
        at="inputs.2.lookups.0.pooling",
    ),
    field("pooled-without-pooling", "inputs", 2, "lookups", 0, "pooling", value=None),
    field("lookup-pooling-missing", "inputs", 2, "lookups", 0, "pooling", value=NOTHING),
    field(
        "sequence-of-weighted",
        *("inputs", 3, "lookups", 0),
        value={"table": "tags", "output": "sequence", "pooling": None},
        at="inputs.3.weighted",
    ),
    field("lookup-pooling-unknown", "inputs", 2, "lookups", 0, "pooling", value="max"),
    field("inputs-empty", "inputs", value=[]),
    field("outputs-empty", "outputs", value=[]),
    field("output-shape-zero", "outputs", 1, "shape", value=[0]),
    field("output-too-wide", "outputs", 1, "shape", value=[1 << 16, 1 << 15]),
    field("table-name-is-a-path", "tables", 0, "name", value="a/b"),
    field("table-empty", "tables", 0, "rows", value=0),
    field("table-too-long", "tables", 0, "rows", value=1 << 41),
    field("weights-unknown", "tables", 0, "weights", value="int2"),
    field("mse-negative", "tables", 0, "mse", value=-1.0),
    field("programs-empty", "programs", value=[]),
    field("program-kind-unknown", "programs", 0, "kind", value="onnx"),
    field("program-dtype-unknown", "programs", 0, "dtype", value="float16"),
    compiled_program("compiled-target-a-path", target="../cpu"),
    compiled_program("compiled-target-taken", target="cpu"),
    compiled_program("compiled-dtype-unknown", dtype="int8"),
    compiled_program("compiled-torch-missing", torch=NOTHING),
    compiled_program("compiled-torch-a-number", torch=2.13),
    compiled_program("compiled-instructions-empty", instructions=[]),
    compiled_program("compiled-instructions-a-text", instructions="avx2"),
    compiled_program("compiled-file-leaving", file="../dense.pt2"),
    compiled_program("compiled-file-unlisted", file="programs/dense.pt2"),
    field("compiled-alone", "programs", value=[COMPILED]),
    field("torchscript-with-instructions", "programs", 0, "instructions", value=["avx2"]),
    field("plans-empty", "plans", value=[]),
    field("max-examples-zero", "limits", "max_examples", value=0),
    field("max-examples-2-to-the-31", "limits", "max_examples", value=1 << 31),
    field("max-ids-of-a-request-zero", "limits", "max_ids", value=0),
    field("size-negative", "files", "samples.safetensors", "bytes", value=-1),
    field("plan-too-large", "files", "plans/halves.json", "bytes", value=(64 << 20) + 1),
    field("samples-too-large", "files", "samples.safetensors", "bytes", value=(1 << 30) + 1),
    # Four ids of 16 bytes, and the longest header.
    field("vocabulary-too-large", "files", "ids/user.safetensors", "bytes", value=16777289),
    field("digest-too-short", "files", "samples.safetensors", "sha256", value="00"),
]

RELATIONS = [
    field("path-leaving", "samples", value="../samples.safetensors"),
    field("path-leaving-inside", "samples", value="tables/../samples.safetensors"),
    field("path-absolute", "samples", value="/etc/hostname"),
    field("path-of-windows", "samples", value="..\\samples.safetensors"),
    field("path-with-empty-part", "samples", value="tables//samples.safetensors"),
    field("path-of-chunk-leaving", "tables", 0, "chunks", 0, value="../../users.safetensors"),
    field("path-of-vocabulary-absolute", "inputs", 2, "ids", "file", value="/ids/user"),
    field("path-unlisted", "samples", value="other.safetensors"),
    (
        "files-lists-a-path-leaving",
        FILE,
        "files",
        rename_file("samples.safetensors", "../samples.safetensors"),
    ),
    (
        "files-lists-an-absolute-path",
        FILE,
        "files",
        rename_file("samples.safetensors", "/samples.safetensors"),
    ),
    (
        "files-lists-the-manifest",
        FILE,
        "files.manifest.json",
        put("files", "manifest.json", value={"bytes": 1, "sha256": "0" * 64}),
    ),
    (
        "files-lists-a-file-as-folder",
        FILE,
        "files",
        put("files", "samples.safetensors/x", value={"bytes": 1, "sha256": "0" * 64}),
    ),
    ("input-names-twice", FILE, "inputs.5.name", again("inputs", 4)),
    ("output-names-twice", FILE, "outputs.2.name", again("outputs", 0)),
    ("table-names-twice", FILE, "tables.3.name", again("tables", 0)),
    ("plan-names-twice", FILE, "plans.2", again("plans", 0)),
    field("default-plan-unknown", "default_plan", value="quarters"),
    field("plan-without-file", "plans", 2, value="quarters"),
    (
        "sparse-before-dense",
        FILE,
        "inputs.1.kind",
        lambda draft: draft.edit_manifest(lambda m: m["inputs"].insert(1, m["inputs"].pop())),
    ),
    field("lookup-table-unknown", "inputs", 2, "lookups", 0, "table", value="nobody"),
    field("ids-rows-not-the-tables", "inputs", 3, "ids", "rows", value=8),
    field("oov-row-not-the-last", "inputs", 2, "ids", "oov_row", value=0),
    field("oov-row-missing", "inputs", 2, "ids", "oov_row", value=None),
    field("oov-row-without-oov", "inputs", 4, "ids", "oov_row", value=599),
    field("dim-zero", "tables", 0, "dim", value=0),
    field("dim-of-wider-rows", "tables", 0, "dim", value=6, at="tables.0.row_bytes"),
    field("weights-of-wider-rows", "tables", 0, "weights", value="fp32", at="tables.0.row_bytes"),
    field("dim-too-large", "tables", 0, "dim", value=1 << 17),
    field("row-bytes-not-fitting", "tables", 0, "row_bytes", value=12),
    field("rows-per-chunk-not-whole-pages", "tables", 0, "rows_per_chunk", value=500),
    field("rows-per-chunk-over-a-gibibyte", "tables", 0, "rows_per_chunk", value=1 << 28),
    field("chunk-missing-in-list", "tables", 1, "chunks", 1, value=NOTHING, at="tables.1.chunks"),
    field(
        "chunk-of-another-table",
        "tables",
        1,
        "chunks",
        1,
        value="tables/users/00000.safetensors",
    ),
]
