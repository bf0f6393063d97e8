"""The protocols of others behind TLS and a token, and from clients that would compress: who comes
in gets the scores of our own protocol, who does not is told why, and nobody else notices."""

import queue

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from tests.cases import cases
from tests.serving import test_torchrec as torchrec
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.open_inference.tensors import arrays_of, infer_inputs
from tests.serving.serve import serve

Code = grpc.StatusCode
TOKEN = "one-token-of-a-test_0123456789"
OTHER = "another-token-of-a-test_012345"
HEALTH = "/grpc.health.v1.Health/Check"
BAD_HEADERS = cases(
    ("headers", "words"),
    {
        "none": ({}, "authorization: expected one header 'Bearer TOKEN', got none"),
        "another": (
            {"authorization": f"Bearer {OTHER}"},
            "authorization: the token is not this server's",
        ),
    },
)
GOOD_HEADERS = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def expected(server):
    """Scores in our own protocol, for the request of the Open Inference Protocol and for
    TorchRec's."""
    with grpc.insecure_channel(server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        return [
            outputs_of(predict(named(request).SerializeToString(), timeout=60))["score"]
            for request in (random_request(5), torchrec.request(5))
        ]


@pytest.fixture
def inputs():
    return infer_inputs(arrays_of(random_request(5), is_packed=True))


def assert_both_answered(oip, channel, inputs, expected, headers=None):
    result = oip.infer("ranker", inputs, headers=headers)
    np.testing.assert_array_equal(result.as_numpy("score"), expected[0])
    predict = channel.unary_unary(torchrec.PREDICT)
    metadata = tuple((headers or {}).items())
    answer = predict(torchrec.encoded(torchrec.request(5)), metadata=metadata, timeout=60)
    np.testing.assert_array_equal(torchrec.predictions(answer)["default"], expected[1])


def refused(call, *arguments, **named):
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **named)
    return caught.value.status().removeprefix("StatusCode."), caught.value.message()


@pytest.fixture
def guarded(repository, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with serve(
        repository, default_timeout_ms=60_000, token_file=str(token), model_control=True
    ) as server:
        yield server


@BAD_HEADERS
def test_every_call_needs_the_token_while_others_go_on(guarded, inputs, expected, headers, words):
    with (
        triton.InferenceServerClient(guarded.address) as oip,
        grpc.insecure_channel(guarded.address) as channel,
    ):
        assert_both_answered(oip, channel, inputs, expected, GOOD_HEADERS)
        calls = [
            (oip.infer, "ranker", inputs),
            (oip.is_server_live,),
            (oip.is_model_ready, "ranker"),
            (oip.get_server_metadata,),
            (oip.get_model_metadata, "ranker"),
            (oip.get_model_config, "ranker"),
            (oip.get_inference_statistics,),
            (oip.get_model_repository_index,),
            (oip.load_model, "ranker"),
            (oip.unload_model, "ranker"),
            (oip.get_log_settings,),
        ]
        for call, *arguments in calls:
            assert refused(call, *arguments, headers=headers) == ("UNAUTHENTICATED", words)
        predict = channel.unary_unary(torchrec.PREDICT)
        call = predict.future(b"", metadata=tuple(headers.items()), timeout=60)
        assert (call.code(), call.details()) == (Code.UNAUTHENTICATED, words)
        assert guarded.metrics().total("embershard_unauthenticated_calls") == len(calls) + 1
        assert_both_answered(oip, channel, inputs, expected, GOOD_HEADERS)
        assert channel.unary_unary(HEALTH)(b"", timeout=60) == b"\x08\x01"  # SERVING


@BAD_HEADERS
def test_a_stream_needs_the_token(guarded, inputs, expected, headers, words):
    answers = queue.Queue()
    with triton.InferenceServerClient(guarded.address) as oip:
        oip.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
        result, error = answers.get(timeout=60)
        assert result is None
        assert (error.status(), error.message()) == ("StatusCode.UNAUTHENTICATED", words)
    with triton.InferenceServerClient(guarded.address) as oip:
        oip.start_stream(lambda result, error: answers.put((result, error)), headers=GOOD_HEADERS)
        oip.async_stream_infer("ranker", inputs)
        result, error = answers.get(timeout=60)
        assert error is None
        np.testing.assert_array_equal(result.as_numpy("score"), expected[0])
