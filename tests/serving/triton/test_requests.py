"""Requests of every form get the answers of our own server, bit for bit."""

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.cases import cases
from tests.serving.asking import named, random_request
from tests.serving.asking import outputs_of as our_outputs_of
from tests.serving.open_inference.tensors import arrays_of, infer_inputs
from tests.serving.refused import GOOD
from tests.serving.triton.asking import inputs_of, one, outputs_of

pytestmark = pytest.mark.needs_triton

FORMS = cases(
    "is_packed",
    {
        "by-name": False,
        "packed": True,
    },
)


@pytest.fixture
def our_outputs(local):
    return lambda request: our_outputs_of(local.answers([named(request).SerializeToString()])[0])


def assert_same(got, expected):
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(got[name], values, strict=True)


@FORMS
@pytest.mark.parametrize("examples", [1, 2, 12, 300])
def test_answers_are_those_of_our_own_server(triton_client, our_outputs, is_packed, examples):
    request = random_request(examples, seed=examples)
    result = triton_client.infer(
        "ranker", inputs_of(request, is_packed=is_packed), request_id="mine"
    )
    assert_same(outputs_of(result), our_outputs(request))
    answer = result.get_response()
    assert (answer.model_name, answer.model_version, answer.id) == ("ranker", "1", "mine")


def test_inputs_may_be_left_out(triton_client, our_outputs):
    result = triton_client.infer("ranker", inputs_of(GOOD))  # No history, hour, likes or query.
    assert_same(outputs_of(result), our_outputs(GOOD))


def test_without_the_first_dimension_triton_refuses_it(triton_client):
    with pytest.raises(InferenceServerException, match="batch size does not match") as caught:
        triton_client.infer("ranker", infer_inputs(arrays_of(GOOD, is_packed=False)))
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_two_requests_in_one_are_refused(triton_client):
    arrays = {
        name: np.concatenate([array, array])
        for name, array in one(arrays_of(GOOD, is_packed=False)).items()
    }
    with pytest.raises(InferenceServerException) as caught:
        triton_client.infer("ranker", infer_inputs(arrays))
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert "expected shape [" in caught.value.message()
