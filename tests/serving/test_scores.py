"""Served scores are those that the package's bytes give, whatever a request looks like."""

import numpy as np
import pytest
from hypothesis import given, settings

from embershard.client import Client
from tests.serving.asking import Asked, named, outputs_of, packed, random_request, requests
from tests.serving.messages import MessagePredictor
from tests.serving.models import export_ranker
from tests.serving.oracle import Oracle

TOLERANCE = 1e-5
SHAPES = {"score": (), "parts": (2,), "user_vector": (6,)}


@pytest.fixture(scope="module")
def oracle(package):
    return Oracle(package)


def assert_close(got, expected, tolerance=TOLERANCE):
    assert got.keys() == expected.keys() == SHAPES.keys()
    for name, values in expected.items():
        assert got[name].shape == values.shape
        assert np.abs(got[name] - values).max() <= tolerance, name


@settings(deadline=None)
@given(request=requests())
def test_named_requests(local, oracle, request):
    (answer,) = local.answers([named(request).SerializeToString()])
    assert_close(outputs_of(answer), oracle.answer(request))


@settings(deadline=None)
@given(request=requests())
def test_packed_requests(local, oracle, fingerprint, request):
    (answer,) = local.answers([packed(request, fingerprint).SerializeToString()])
    assert_close(outputs_of(answer), oracle.answer(request))


@settings(deadline=None)
@given(request=requests())
def test_the_clients_requests(client: Client, oracle, request):
    answer = client.predict(
        dense=request.dense,
        sparse=request.sparse,
        weights=request.weights,
        num_examples=request.num_examples,
    )
    assert_close(answer, oracle.answer(request))


@pytest.mark.parametrize(
    "weights", ["int4", "fp16", "fp32", {"items": "int4", "t*": "fp16", "*": "fp32"}]
)
def test_every_way_to_store_a_table(tmp_path, weights):
    package = export_ranker(tmp_path, weights=weights)
    request = random_request(200)
    (answer,) = MessagePredictor(package, threads=1).answers([named(request).SerializeToString()])
    assert_close(outputs_of(answer), Oracle(package).answer(request))


def test_output_shapes(client):
    request = random_request(3)
    answer = client.predict(dense=request.dense, sparse=request.sparse, weights=request.weights)
    assert {name: values.shape for name, values in answer.items()} == {
        "score": (3,),
        "parts": (3, 2),
        "user_vector": (1, 6),
    }


def test_only_the_outputs_asked_for_come_back(client):
    answer = client.predict(dense={"age": 1, "price": [2]}, outputs=["parts"])
    assert list(answer) == ["parts"]


def test_unknown_ids_are_counted_for_each_feature_that_has_any(client):
    answer = client.predict(
        dense={"age": 1, "price": [2, 3]},
        sparse={
            "user": ["nobody"],
            "item": [[100, 7], [8, 9]],
            "history": [1, 2, 3, 4, 5, 6, 7],  # The last five count.
            "category": [[0], [1]],
        },
    )
    assert answer.unknown_ids == {"user": 1, "item": 3, "history": 5}


def test_an_unknown_id_that_is_zero_counts_in_a_mean(local, oracle):
    alone = Asked(1, dense={"age": [0], "price": [0]}, sparse={"item": [[100]]})
    beside = Asked(1, dense={"age": [0], "price": [0]}, sparse={"item": [[100, 7]]})
    answers = local.answers([named(a).SerializeToString() for a in (alone, beside)])
    first, second = (outputs_of(answer)["parts"] for answer in answers)
    assert np.abs(first - second).max() > 1e-3
    assert np.abs(second - oracle.answer(beside)["parts"]).max() <= TOLERANCE
