"""Rows and norms of the golden package, whose values follow formulas:

table   rows   value of row r, column c      id map
users      5   (16 r + c) / 128 - 1          vocab, oov row 4
items    600   ((r + c) % 16) / 2 - 1        identity
tags       7   r + c / 4                     hash, seed 3
"""

import math

import numpy as np
import pytest
import xxhash

from embershard.explain import explain_request, explain_sample, explanation_json
from tests.hostile.draft import GOLDEN

USERS = (16 * np.arange(5)[:, None] + np.arange(4)) / 128 - 1
ITEMS = ((np.arange(600)[:, None] + np.arange(8)) % 16) / 2 - 1
TAGS = np.arange(7)[:, None] + np.arange(4) / 4

REQUEST = {
    "dense": {"age": 0.5},
    "sparse": {
        "user": ["eve"],
        "tags": [10, 11, 12, -1, 2**64 - 5],
        "item": [[0, 299, 300], [], [599]],
    },
    "weights": {"tags": [9.0, 9.0, 0.5, 2.0, -1.0]},
}


@pytest.fixture(scope="module")
def explanation():
    return explanation_json(explain_request(GOLDEN, **REQUEST))


@pytest.fixture(scope="module")
def inputs(explanation):
    return {feature["name"]: feature for feature in explanation["sparse"]}


def bucket(number):
    data = (number % 2**64).to_bytes(8, "little")
    return xxhash.xxh3_64_intdigest(data, seed=3) % 7


def norm(vector):
    return math.sqrt(float((np.asarray(vector, np.float64) ** 2).sum()))


def test_an_id_that_nobody_knows_has_the_oov_row(inputs):
    user = inputs["user"]
    assert user["unknown_ids"] == 1
    assert user["ids"]["oov_row"] == 4
    (only,) = user["lists"]
    (result,) = only["ids"]
    hashed = xxhash.xxh3_64_intdigest(b"eve")
    assert result["id"] == (hashed + 2**63) % 2**64 - 2**63
    assert (result["given"], result["fate"], result["row"]) == ("eve", "oov", 4)
    assert result["norms"] == pytest.approx([norm(USERS[4])], rel=1e-6)
    assert only["pooled_norms"] == pytest.approx([norm(USERS[4])], rel=1e-6)


def test_a_known_string_has_its_row():
    request = {"dense": {"age": 0.5}, "sparse": {"user": ["bob"]}}
    user = explanation_json(explain_request(GOLDEN, **request))["sparse"][0]
    (result,) = user["lists"][0]["ids"]
    assert (result["given"], result["fate"], result["row"]) == ("bob", "known", 1)
    assert user["unknown_ids"] == 0


def test_hashed_ids_have_the_rows_of_their_buckets(inputs):
    tags = inputs["tags"]["lists"][0]
    assert [row_id["row"] for row_id in tags["ids"][2:]] == [bucket(12), bucket(-1), bucket(-5)]
    assert [row_id["id"] for row_id in tags["ids"]] == [10, 11, 12, -1, -5]
    assert tags["ids"][4]["given"] == 2**64 - 5


def test_what_max_ids_cuts_counts_for_nothing(inputs):
    tags = inputs["tags"]
    assert (tags["max_ids"], tags["keep"], tags["cut_ids"]) == (3, "last", 2)
    for cut in tags["lists"][0]["ids"][:2]:
        assert (cut["fate"], cut["row"], cut["norms"]) == ("cut", None, [None])
    pooled = 0.5 * TAGS[bucket(12)] + 2.0 * TAGS[bucket(-1)] - TAGS[bucket(-5)]
    assert tags["lists"][0]["pooled_norms"] == pytest.approx([norm(pooled)], rel=1e-6)


def test_the_norm_of_a_row_is_that_of_the_row_before_its_weight(inputs):
    for row_id in inputs["tags"]["lists"][0]["ids"][2:]:
        assert row_id["norms"] == pytest.approx([norm(TAGS[row_id["row"]])], rel=1e-6)
    assert [item["weight"] for item in inputs["tags"]["lists"][0]["ids"]] == [9, 9, 0.5, 2, -1]


def test_a_mean_is_of_the_whole_list_and_nothing_of_none(inputs):
    first, empty, last = inputs["item"]["lists"]
    assert [row_id["row"] for row_id in first["ids"]] == [0, 299, 300]
    assert first["pooled_norms"] == pytest.approx([norm(ITEMS[[0, 299, 300]].mean(axis=0))])
    assert (empty["ids"], empty["pooled_norms"]) == ([], [0.0])
    assert last["pooled_norms"] == pytest.approx([norm(ITEMS[599])])
    assert [ids["example"] for ids in inputs["item"]["lists"]] == [0, 1, 2]
    assert inputs["user"]["lists"][0]["example"] is None


def test_a_sample_is_explained_with_the_packages_scores():
    explanation = explanation_json(explain_sample(GOLDEN, 1))
    (user,) = explanation["sparse"][0]["lists"][0]["ids"]
    assert (user["given"], user["fate"]) == (None, "oov")
    assert explanation["num_examples"] == 2
    pooled = np.concatenate([USERS[4], np.zeros(4)]).mean()
    logits = 0.125 + pooled + np.array([-0.5, 0.5]) + np.array([0.0, ITEMS[17].mean()])
    assert explanation["outputs"]["score"] == pytest.approx(1 / (1 + np.exp(-logits)), abs=1e-6)


def test_dense_inputs_say_whether_they_were_given(explanation):
    age, price = explanation["dense"]
    assert (age["given"], age["values"], age["default"]) == (True, [0.5], None)
    assert (price["given"], price["values"], price["default"]) == (False, [0.25] * 3, 0.25)
