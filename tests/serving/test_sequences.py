"""Models with sequences, served: the oracle's scores, whatever the split, and vectors of users."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard.client import Client
from embershard.errors import RequestError
from tests.cases import cases
from tests.serving.asking import Asked, named, outputs_of
from tests.serving.attending import SCHEMA, export_attending, requests
from tests.serving.messages import MessagePredictor
from tests.serving.models import with_plan
from tests.serving.oracle import Oracle
from tests.serving.serve import serve

WEIGHTS = {
    "int8": "int8",
    "int4": "int4",
    "fp16": "fp16",
    "mixed": {"item_rows": "int4", "words": "fp16", "*": "int8"},
}


@pytest.fixture(scope="module", params=WEIGHTS)
def stored(request, tmp_path_factory):
    package = export_attending(
        tmp_path_factory.mktemp(request.param), weights=WEIGHTS[request.param]
    )
    return MessagePredictor(package, threads=1), Oracle(package)


def answers(local, *args: Asked, outputs=()):
    messages = [named(request) for request in args]
    for message in messages:
        message.outputs.extend(outputs)
    answers = local.answers([message.SerializeToString() for message in messages])
    return [outputs_of(result) for result in answers]


@settings(deadline=None, max_examples=60)
@given(request=requests())
def test_scores_are_those_of_the_packages_bytes(stored, request):
    local, oracle = stored
    (got,) = answers(local, request)
    for name, expected in oracle.answer(request).items():
        assert got[name].shape == expected.shape
        assert np.abs(got[name] - expected).max() <= 1e-5, name


@settings(deadline=None, max_examples=60)
@given(wholes=st.lists(requests(), min_size=1, max_size=4), data=st.data())
def test_any_split_alone_or_merged(stored, wholes, data):
    local, _ = stored
    expected = [answers(local, whole)[0] for whole in wholes]
    parts = []
    for whole in wholes:
        first = data.draw(st.integers(1, whole.num_examples))
        rest = whole.num_examples - first
        parts.append([whole.examples(0, first)] + ([whole.examples(first, rest)] if rest else []))

    merged = iter(answers(local, *[chunk for chunks in parts for chunk in chunks]))
    for chunks, whole in zip(parts, expected, strict=True):
        together = [next(merged) for _ in chunks]
        alone = [answers(local, chunk)[0] for chunk in chunks]
        for actual in (together, alone):
            scores = np.concatenate([item["score"] for item in actual])
            assert np.abs(scores - whole["score"]).max() <= 1e-6
            for result in actual:
                assert np.abs(result["history_mean"] - whole["history_mean"]).max() <= 1e-6


def test_a_plan_over_two_devices_does_not_change_one_bit(tmp_path):
    package = export_attending(tmp_path / "one", weights="int8")
    spread = with_plan(package, tmp_path / "attending" / "1", devices=2)
    request = Asked(
        2,
        dense={"age": [0.25], "price": [1.0, -1.0]},
        sparse={"history": [[100, 7, -7, 139]], "item": [[100], [139]], "words": [[1, 12], [8]]},
        schema=SCHEMA,
    )
    (expected,) = answers(MessagePredictor(package, threads=1), request)
    for tables in ("mmap", "resident"):
        (got,) = answers(MessagePredictor(spread, plan="2xcpu", tables=tables, threads=1), request)
        for name, values in expected.items():
            assert got[name].tobytes() == values.tobytes(), name


HISTORY = {"history": [[100, 101, 139]], "user": [[1]]}


def test_a_request_without_examples_gets_request_outputs(stored):
    local, oracle = stored
    one = Asked(1, dense={"age": [0.5], "price": [3.0]}, sparse=HISTORY)
    none = Asked(0, dense={"age": [0.5]}, sparse=HISTORY)

    (alone,) = answers(local, none, outputs=["history_mean"])
    expected = oracle.answer(one)["history_mean"]
    assert list(alone) == ["history_mean"]
    assert np.abs(alone["history_mean"] - expected).max() <= 1e-5

    # The empty request between others, and among empty ones.
    other = dataclasses.replace(one, sparse={"history": [[120]]})
    for group in ([one, none, other], [none, other], [none, none], [other, none]):
        actual = answers(local, *group, outputs=["history_mean"])
        for request, got in zip(group, actual, strict=True):
            if request is not other:
                assert np.abs(got["history_mean"] - expected).max() <= 1e-5
            else:
                known = oracle.answer(other)["history_mean"]
                assert np.abs(got["history_mean"] - known).max() <= 1e-5


@pytest.fixture(scope="module")
def attending_client(tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    export_attending(repository, weights="int8")
    with (
        serve(repository) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        yield client


def test_over_grpc_a_user_is_asked_about_without_candidates(attending_client):
    with_candidates = attending_client.predict(
        dense={"age": 0.5, "price": [1.0, 2.0]}, sparse={**HISTORY, "item": [[100], [-7]]}
    )
    without = attending_client.predict(
        dense={"age": 0.5}, sparse=HISTORY, num_examples=0, outputs=["history_mean"]
    )
    assert with_candidates["score"].shape == (2,)
    np.testing.assert_allclose(
        without["history_mean"], with_candidates["history_mean"], rtol=0, atol=1e-6
    )


@cases(
    "outputs",
    {
        "all": [],
        "one-of-examples": ["history_mean", "score"],
    },
)
def test_outputs_of_examples_cannot_be_had_without_examples(attending_client, outputs):
    with pytest.raises(RequestError) as raised:
        attending_client.predict(
            dense={"age": 0.5}, sparse=HISTORY, num_examples=0, outputs=outputs
        )
    assert str(raised.value) == (
        "num_examples: expected 1..4096, got 0; without examples, name only outputs in request "
        "scope: 'history_mean'"
    )


def test_candidates_that_were_said_not_to_be_there_are_refused(attending_client):
    with pytest.raises(RequestError, match="expected 0 examples as num_examples says, got 1"):
        attending_client.predict(
            dense={"age": 0.5, "price": [1.0]}, num_examples=0, outputs=["history_mean"]
        )
