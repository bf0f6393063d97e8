"""Large and hostile JSON is checked in linear time: quadratic work would time out."""

import json
import tracemalloc

import pytest
from pydantic import ValidationError

from embershard.errors import PackageError
from embershard.package.manifest import Manifest
from embershard.package.manifest_checks import parse_manifest
from embershard.package.validation import parse_json
from tests.hostile.draft import GOLDEN

pytestmark = pytest.mark.timeout(60)


def refused(data):
    with pytest.raises(PackageError) as refusal:
        parse_json(data, "a.json")
    return str(refusal.value)


def test_millions_of_escapes_in_a_string_that_never_ends():
    assert refused(b'"' + b'\\"' * 3_000_000).startswith("a.json: json: expected JSON, got Unterm")


def test_brackets_inside_strings_do_not_count_as_levels():
    assert parse_json(rb'["[[[[[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["]', "a.json")


def test_brackets_behind_an_escaped_backslash_do():
    assert "32 levels" in refused(rb'["\\",' + b"[" * 32)


def test_a_key_given_twice_is_found_among_hundred_thousands():
    keys = ",".join(f'"k{number}":0' for number in range(300_000))
    assert refused(f'{{{keys},"k299999":0}}'.encode()).endswith("duplicate key 'k299999'")


def test_the_first_key_that_comes_again_is_named():
    assert refused(b'{"a":0,"b":0,"c":0,"c":0,"b":0}').endswith("duplicate key 'b'")


def test_a_long_string_costs_a_few_times_its_size():
    data = b'["' + b"a" * 5_000_000 + b'"]'
    tracemalloc.start()
    try:
        parse_json(data, "a.json")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * len(data)


def test_half_a_pair_is_refused_where_it_is_escaped():
    assert refused(rb'{"a":"\ud800"}').endswith("expected UTF-8, got half of a surrogate pair")
    assert parse_json(rb'"\ud83d\ude00"', "a.json") == "\N{GRINNING FACE}"


def test_only_the_first_of_many_wrong_elements_is_kept():
    document = json.loads((GOLDEN / "manifest.json").read_bytes())
    document["inputs"] = [{}] * 300_000
    data = json.dumps(document).encode()
    with pytest.raises(PackageError, match=r"^manifest.json: inputs.0.kind: missing key"):
        parse_manifest(data)
    with pytest.raises(ValidationError) as wrong:
        Manifest.model_validate_json(data)
    assert wrong.value.error_count() < 5
