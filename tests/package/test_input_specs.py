"""Conversion of id maps and inputs to the entries of a manifest, and back."""

import pytest

from embershard.package import Hash, Identity, Schema, SparseInput, Vocabulary
from embershard.package.input_specs import ids_spec, known_ids, schema_of, specs_of, with_lookups
from embershard.package.manifest_inputs import Lookup
from tests.cases import cases

LOOKUPS = (Lookup(table="t", output="pooled", pooling="sum"),)

MAPS = {
    "identity": (
        Identity(9, "zero"),
        {"kind": "identity", "rows": 9, "unknown": "zero", "oov_row": None},
    ),
    "identity-oov": (
        Identity(9, "oov"),
        {"kind": "identity", "rows": 10, "unknown": "oov", "oov_row": 9},
    ),
    "hash": (Hash(9, seed=3), {"kind": "hash", "rows": 9, "seed": 3}),
    "vocabulary": (
        Vocabulary([4, 5]),
        {"kind": "vocab", "rows": 2, "file": "ids/f", "unknown": "reject", "oov_row": None},
    ),
    "vocabulary-oov": (
        Vocabulary([4, 5], "oov"),
        {"kind": "vocab", "rows": 3, "file": "ids/f", "unknown": "oov", "oov_row": 2},
    ),
}


@cases(("ids", "expected"), MAPS)
def test_an_id_map_says_the_rows_of_its_table(ids, expected):
    assert ids_spec(ids, file="ids/f").model_dump() == expected


@cases(("ids", "expected"), MAPS)
def test_an_id_map_comes_back(ids, expected):
    schema = Schema(sparse=[SparseInput("x", "request", ids, True, 5, "first")])
    requests = []

    def read(file, unknown):
        requests.append((file, unknown))
        return Vocabulary([4, 5], unknown)

    dense, sparse = specs_of(schema, {"x": "ids/f"})

    assert schema_of(dense, sparse, read) == schema
    policy = expected.get("unknown")
    assert requests == ([("ids/f", policy)] if isinstance(ids, Vocabulary) else [])


@pytest.mark.parametrize("ids", [Identity(9), Identity(9, "oov"), Vocabulary(range(9), "oov")])
def test_the_oov_row_is_no_known_id(ids):
    assert known_ids(ids_spec(ids, file="f")) == 9


def test_an_input_without_a_map_gets_the_rows_of_its_table():
    (_, (entry,)) = specs_of(Schema(sparse=[SparseInput("x", max_ids=2)]), {})

    spec = with_lookups(entry, LOOKUPS, rows=7)

    assert entry.ids is None
    assert spec.ids.model_dump() == ids_spec(Identity(7), file="").model_dump()
    assert (spec.name, spec.max_ids, spec.lookups) == ("x", 2, LOOKUPS)


def test_an_input_with_a_map_keeps_it():
    (_, (entry,)) = specs_of(Schema(sparse=[SparseInput("x", ids=Hash(5))]), {})

    assert with_lookups(entry, LOOKUPS, rows=5).ids == entry.ids
