"""Id maps: known ids, the three policies for unknown ids, hashes, and refusals."""

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from embershard.errors import InputError
from embershard.ids import hash_ids, hash_string
from embershard.package.id_maps import MAX_ROWS, Hash, Identity, Vocabulary
from tests.cases import cases, refused

INT64 = st.integers(-(2**63), 2**63 - 1)


def int64(*ids):
    return np.array(ids, np.int64)


@cases(
    ("ids", "rows"),
    {
        "identity-zero": (Identity(3, unknown="zero"), [0, 2, -1, -1]),
        "identity-oov": (Identity(3, unknown="oov"), [0, 2, 3, 3]),
        "vocabulary-zero": (Vocabulary([2, 7, 0], unknown="zero"), [2, 0, -1, -1]),
        "vocabulary-oov": (Vocabulary([2, 7, 0], unknown="oov"), [2, 0, 3, 3]),
    },
)
def test_policies(ids, rows):
    assert ids.rows_of(int64(0, 2, 3, -1)).tolist() == rows


def test_lookup_says_unknown_whatever_the_policy():
    for policy in ("reject", "oov", "zero"):
        assert Identity(2, policy).lookup(int64(1, 2)).tolist() == [1, -1]
        assert Vocabulary([9], policy).lookup(int64(9, 2)).tolist() == [0, -1]


@cases(
    ("ids", "part"),
    {"identity": (Identity(3), "0..2"), "vocabulary": (Vocabulary([1, 2]), "the vocabulary")},
)
def test_reject_names_the_first_unknown_id(ids, part):
    with refused(InputError, "id -5 at position 1", part):
        ids.rows_of(int64(1, -5, -6))


@given(st.lists(INT64), st.integers(0, 2**64 - 1))
def test_hashes_are_those_of_the_reference(ids, seed):
    data = [row_id.to_bytes(8, "little", signed=True) for row_id in ids]
    expected = [xxhash.xxh3_64_intdigest(datum, seed=seed) for datum in data]
    assert hash_ids(int64(*ids), seed).tolist() == expected


def test_known_hashes_do_not_change():
    # Packages outlive releases, so hashes must never change. The numbers come from the C library.
    assert hash_string("") == 0x2D06800538D394C2
    assert Hash(2**40).rows_of(int64(0, 1, -1)).tolist() == [
        805030046937,
        229325371694,
        981357577235,
    ]


def test_the_seed_changes_the_hash():
    ids = np.arange(100)
    assert (Hash(10**6, seed=1).rows_of(ids) != Hash(10**6, seed=2).rows_of(ids)).all()


@given(st.lists(INT64), st.integers(1, MAX_ROWS), st.integers(0, 2**64 - 1))
def test_hash_stays_within_its_buckets_and_depends_on_the_id(ids, buckets, seed):
    result = Hash(buckets, seed).rows_of(int64(*ids))

    assert Hash(buckets, seed).num_rows == buckets

    assert result.dtype == np.int64
    assert ((result >= 0) & (result < buckets)).all()
    for row_id, row in zip(ids, result, strict=True):
        assert Hash(buckets, seed).rows_of(int64(row_id)).tolist() == [row]


@given(st.lists(INT64, min_size=1, unique=True), st.lists(INT64))
def test_vocabulary_agrees_with_a_dictionary(ids, queries):
    rows = {row_id: row for row, row_id in enumerate(ids)}

    result = Vocabulary(ids, unknown="zero").rows_of(int64(*queries, *ids))

    assert result.tolist() == [rows.get(item, -1) for item in [*queries, *ids]]


@given(st.lists(st.text(max_size=8), min_size=1, unique=True))
def test_strings_stand_for_the_hash_of_their_utf8(names):
    hashes = [np.uint64(xxhash.xxh3_64_intdigest(name.encode())).astype(np.int64) for name in names]

    vocabulary = Vocabulary(names)

    assert vocabulary.ids.tolist() == [int(hash_value) for hash_value in hashes]
    assert vocabulary.rows_of(int64(*map(hash_string, names))).tolist() == list(range(len(names)))


def test_unsigned_ids_keep_their_bits():
    expected = [-1, -(2**63), 5]
    assert Vocabulary([2**64 - 1, 2**63, 5]).ids.tolist() == expected
    assert Vocabulary(np.array([2**64 - 1, 2**63, 5], np.uint64)).ids.tolist() == expected
    assert Vocabulary(np.array([255, 5], np.uint8)).ids.tolist() == [255, 5]


def test_ids_of_any_shape_keep_it():
    ids = np.array([[1, 2], [2, 1]])
    for id_map in (Identity(3), Hash(7), Vocabulary([0, 1, 2])):
        assert id_map.rows_of(ids).shape == (2, 2)
        assert id_map.rows_of(int64()).shape == (0,)


def test_vocabularies_are_equal_when_ids_order_and_policy_are():
    assert Vocabulary([1, 2]) == Vocabulary(np.array([1, 2]))
    assert Vocabulary([1, 2]) != Vocabulary([2, 1])
    assert Vocabulary([1, 2]) != Vocabulary([1, 2], unknown="zero")
    assert Vocabulary([1, 2]) != [1, 2]
    assert Vocabulary([1, 2]).same_ids(Vocabulary([1, 2], unknown="zero"))
    assert len({Vocabulary([1, 2]), Vocabulary(np.array([1, 2])), Vocabulary([2, 1])}) == 2


def test_a_vocabulary_is_shown_without_its_ids():
    assert repr(Vocabulary(range(5000), unknown="oov")) == "Vocabulary(<5000 ids>, unknown='oov')"


def test_a_vocabulary_does_not_change_with_the_list_it_came_from():
    given_ids = np.array([3, 4])
    vocabulary = Vocabulary(given_ids)
    given_ids[0] = 9
    assert vocabulary.ids.tolist() == [3, 4]
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.keys[0] = 1


@cases(
    ("build", "parts"),
    {
        "identity-empty": (lambda: Identity(0), ["rows", "got 0"]),
        "identity-too-many": (lambda: Identity(MAX_ROWS + 1), ["rows", f"got {MAX_ROWS + 1}"]),
        "rows-bool": (lambda: Identity(True), ["rows", "got True"]),
        "policy": (lambda: Identity(3, "guess"), ["got 'guess'"]),
        "hash-empty": (lambda: Hash(0), ["buckets", "got 0"]),
        "seed": (lambda: Hash(5, seed=-1), ["seed", "got -1"]),
        "vocabulary-empty": (lambda: Vocabulary([]), ["got none"]),
        "vocabulary-policy": (lambda: Vocabulary([1], "guess"), ["got 'guess'"]),
        "vocabulary-twice": (lambda: Vocabulary([5, 7, 5]), ["got 5 at positions 0 and 2"]),
        "names": (lambda: Vocabulary(iter("baa")), ["got a at positions 1 and 2"]),
        "one-string": (lambda: Vocabulary("ab"), ["got str 'ab'"]),
        "set": (lambda: Vocabulary({"a", "b"}), ["got set"]),
        "mapping": (lambda: Vocabulary({5: 1, 7: 0}), ["got dict"]),
        "mixed": (lambda: Vocabulary([1, "b"]), ["got both"]),
        "float": (lambda: Vocabulary([1.0]), ["got float (1.0)"]),
        "bool": (lambda: Vocabulary([True]), ["got bool (True)"]),
        "too-large": (lambda: Vocabulary([2**64]), ["got 18446744073709551616"]),
        "two-dims": (lambda: Vocabulary(np.ones((2, 2), int)), ["one dimension"]),
        "surrogate": (lambda: Vocabulary(["\ud800"]), ["UTF-8"]),
    },
)
def test_refusals(build, parts):
    with refused(InputError, *parts):
        build()
