"""Changes of scores without an input agree with the oracle's answer to the shorter request."""

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from embershard.errors import InternalError
from embershard.explain import explain_request, explanation_json, explanation_tables
from embershard.explain import explanation as explaining
from tests.serving.asking import Asked, random_request
from tests.serving.models import SCHEMA

TOLERANCE = 2e-6

ASKED = random_request(3, seed=10)
ASKED.sparse.update({"user": [["u1", "nobody"]], "item": [[100, 7], [], [2**64 - 2]]})
del ASKED.dense["hour"]  # The server then uses the default of `hour`.


def without(request: Asked, name: str) -> Asked:
    """The request without an input, whose default, 0 or empty lists then count."""
    dense = {value: values for value, values in request.dense.items() if value != name}
    for item in SCHEMA.dense:
        if item.name == name and item.default is None:
            dense[name] = [0.0] * (1 if item.scope == "request" else request.num_examples)
    return replace(
        request,
        dense=dense,
        sparse={value: lists for value, lists in request.sparse.items() if value != name},
        weights={value: lists for value, lists in request.weights.items() if value != name},
    )


def explained(package, request, **options):
    return explain_request(
        package, dense=request.dense, sparse=request.sparse, weights=request.weights, **options
    )


def test_changes_are_those_of_the_request_without_the_input(package, oracle):
    explanation = explained(package, ASKED)
    scores = oracle.answer(ASKED)
    assert [change.input for change in explanation.left_out] == [
        item.name for item in (*SCHEMA.dense, *SCHEMA.sparse)
    ]
    moved = 0.0
    for entry in explanation.left_out:
        other = oracle.answer(without(ASKED, entry.input))
        assert entry.failed == ""
        assert set(entry.change) == {"score", "parts", "user_vector"}
        for name, change in entry.change.items():
            assert explanation.scores[name] == pytest.approx(scores[name], abs=TOLERANCE)
            assert change.shape == scores[name].shape
            assert change == pytest.approx(other[name] - scores[name], abs=TOLERANCE)
            moved = max(moved, float(np.abs(change).max()))
    assert moved > 0.01  # Otherwise the test compares only zeros.


def test_it_says_what_stands_in_the_place_of_an_input(package):
    places = {change.input: change.in_its_place for change in explained(package, ASKED).left_out}
    assert places == {
        "age": "0",
        "price": "0",
        "hour": "default 0.5",
        "likes": "default -1.25",
        **{item.name: "no ids" for item in SCHEMA.sparse},
    }


def test_only_the_outputs_asked_for_are_explained(package):
    explanation = explanation_json(explained(package, ASKED, outputs=["parts"]))
    assert list(explanation["outputs"]) == ["parts"]
    assert all(
        list(feature["left_out"]["change"]) == ["parts"] for feature in explanation["sparse"]
    )


class Counting:
    """A predictor that records the sizes of its calls."""

    def __init__(self, predictor) -> None:
        self.predictor = predictor
        self.calls = []

    def predict_merged(self, requests, outputs):
        self.calls.append(len(requests))
        return self.predictor.predict_merged(requests, outputs)


def request_and_predictor(package, request):
    """The request in the form of `embershard.explain`, and a predictor of the package."""
    from embershard.explain.request import client_request
    from embershard.package import Package
    from embershard.serving import LocalPredictor

    predictor = LocalPredictor(package, threads=1)
    sample = predictor.request(dense=request.dense, sparse=request.sparse, weights=request.weights)
    manifest = Package.open(package).manifest
    return client_request(manifest, sample, request.dense, request.sparse), predictor


def test_a_small_request_is_one_merged_call(package):
    request, predictor = request_and_predictor(package, ASKED)
    counting = Counting(predictor)
    explaining.leave_out(counting, request)
    assert counting.calls == [1 + len(SCHEMA.dense) + len(SCHEMA.sparse)]


def test_a_large_request_is_several_calls_and_the_same_changes(package, oracle):
    request = random_request(4000, seed=5)
    prepared, predictor = request_and_predictor(package, request)
    counting = Counting(predictor)
    answer, actual = explaining.leave_out(counting, prepared)
    assert max(counting.calls) * 4000 <= explaining.CALL_EXAMPLES
    assert sum(counting.calls) == len(actual) + len(counting.calls)
    scores = oracle.answer(request)["score"]
    assert answer.outputs["score"] == pytest.approx(scores, abs=TOLERANCE)
    for result in actual:
        expected = oracle.answer(without(request, result.input))["score"] - scores
        assert result.change["score"] == pytest.approx(expected, abs=TOLERANCE)


def test_an_input_without_which_there_is_no_score_says_so(package):
    request, predictor = request_and_predictor(package, ASKED)

    class Failing:
        def predict_merged(self, requests, outputs):
            answers = predictor.predict_merged(requests, outputs)
            answers[2] = InternalError("output 'score' at example 1 is not finite")
            return answers

    _, result = explaining.leave_out(Failing(), request)
    assert result[1].failed == "output 'score' at example 1 is not finite"
    assert result[1].change == {}
    assert [item.failed for item in (result[0], *result[2:])] == [""] * (len(result) - 1)
    explanation = replace(explained(package, ASKED), left_out=tuple(result))
    text = io.StringIO()
    Console(file=text, width=250).print(explanation_tables(explanation))
    assert f"{result[1].in_its_place}: {result[1].failed}" in text.getvalue()
