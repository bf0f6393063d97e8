"""Triton refuses the requests that our own server refuses. The backend uses the same words.
Triton's core checks names and fixed shapes first, and uses its own words."""

import re

import grpc
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.cases import cases
from tests.serving.open_inference.test_refusals import ARRAYS, SHARED, message
from tests.serving.refused import GOOD, Code
from tests.serving.triton.asking import inputs_of

pytestmark = pytest.mark.needs_triton

INVALID, NOT_FOUND = Code.INVALID_ARGUMENT, Code.NOT_FOUND

# By the case's name: what Triton's core says of it.
TRITONS_OWN = {
    "unknown-sparse-feature": (INVALID, "unexpected inference input 'itm..*' for model 'ranker'"),
    "unknown-dense-feature": (INVALID, "unexpected inference input 'prize' for model 'ranker'"),
    "feature-given-twice": (INVALID, "input 'item.values' already exists in request"),
    "another-model": (NOT_FOUND, "unknown model: 'rankr' is not found"),
    "unknown-output": (INVALID, "unexpected inference output 'scor' for model 'ranker'"),
}


@pytest.fixture(scope="module")
def infer(served):
    """ModelInfer, with Triton's messages."""
    with grpc.insecure_channel(served.grpc) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        yield lambda request: stub.ModelInfer(request, timeout=60)


def with_first_dimension(request):
    for tensor in request.inputs:
        tensor.shape.insert(0, 1)
    return request


@pytest.mark.parametrize(("refused", "is_packed"), SHARED)
def test_is_refused(infer, fingerprint, refused, is_packed):
    request = message(refused, is_packed=is_packed, fingerprint=fingerprint)
    with pytest.raises(grpc.RpcError) as caught:
        infer(with_first_dimension(request))
    code, words = caught.value.code(), caught.value.details()
    if refused.name in TRITONS_OWN:
        expected, pattern = TRITONS_OWN[refused.name]
        assert code is expected
        assert re.search(pattern, words), words
        return
    for ours, theirs in ARRAYS.items():
        words = words.replace(theirs, ours)
    assert code is refused.code
    assert refused.matches(words), words


@cases(
    ("parameters", "words"),
    {
        "a-sequence": (
            {"sequence_id": 5},
            "parameter 'sequence_id': expected none: sequences of requests are not served",
        ),
        "a-sequence-of-another-name": (
            {"sequence_id": "mine"},
            "parameter 'sequence_id': expected none: sequences of requests are not served",
        ),
        "a-negative-timeout": (
            {"timeout": -5},
            "parameter 'timeout': expected microseconds, a whole number of at least 0",
        ),
    },
)
def test_what_triton_reads_itself_is_refused_as_by_us(triton_client, server, parameters, words):
    with triton.InferenceServerClient(server.address) as ours:
        for client in (triton_client, ours):
            with pytest.raises(InferenceServerException) as caught:
                client.infer("ranker", inputs_of(GOOD), **parameters)
            assert caught.value.message() == words
            assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
