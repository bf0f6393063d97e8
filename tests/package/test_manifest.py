"""The published JSON schema of manifests, their fingerprint, and error messages."""

import json
from pathlib import Path

import pytest
import xxhash

from embershard.errors import PackageError
from embershard.package.manifest import Manifest, default_limits, fingerprint_of
from embershard.package.manifest_checks import parse_manifest
from tests.hostile.draft import GOLDEN

DOCS = Path(__file__).parent.parent.parent / "docs"
GOLDEN_TEXT = (GOLDEN / "manifest.json").read_bytes()


def test_the_published_json_schema_is_that_of_the_models():
    published = json.loads((DOCS / "manifest.schema.json").read_text())
    assert published == Manifest.model_json_schema(), "run make docs"


def test_the_fingerprint_is_of_canonical_json():
    inputs = [{"name": "ä", "kind": "dense", "scope": "request", "default": 0.25}]
    text = '{"inputs":[{"default":0.25,"kind":"dense","name":"ä","scope":"request"}],"outputs":[]}'
    assert fingerprint_of(inputs, []) == f"{xxhash.xxh3_64_intdigest(text.encode()):016x}"


def test_the_golden_manifest_says_what_was_written():
    manifest = parse_manifest(GOLDEN_TEXT)
    assert (manifest.model, manifest.version) == ("tiny", 1)
    assert manifest.fingerprint == "789cfa4142583ca4"
    assert [feature.name for feature in manifest.dense] == ["age", "price"]
    assert [feature.name for feature in manifest.sparse] == ["user", "tags", "item"]
    assert manifest.limits == default_limits(max_examples=64, max_ids=1000)
    assert [table.table_bytes for table in manifest.tables] == [40, 4800, 56]
    assert [(table.rows, table.dim) for table in manifest.tables] == [(5, 4), (600, 8), (7, 4)]
    assert [table.fp32_bytes for table in manifest.tables] == [80, 19200, 112]


def test_default_limits():
    assert (default_limits().max_examples, default_limits().max_ids) == (4096, 1 << 20)


def test_long_values_are_cut_in_messages():
    text = GOLDEN_TEXT.replace(b'"tiny"', b'"' + b"x" * 1000 + b'"')
    with pytest.raises(PackageError, match=r"^manifest.json: model: .* got xxx") as raised:
        parse_manifest(text)
    assert len(str(raised.value)) < 300
