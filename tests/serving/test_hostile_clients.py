"""Whatever arrives at the port, the server goes on answering the others."""

import random
import socket
from contextlib import ExitStack

import grpc
import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.client import Client
from embershard.errors import RequestError
from tests.cases import cases
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.refused import GOOD, Code
from tests.serving.serve import serve

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes.fromhex("000000040000000000")  # No settings.
# HEADERS on stream 1 that announces 100 bytes, of which few follow.
HALF_HEADERS = bytes.fromhex("000064010400000001") + b"\x83\x86"
# DATA on stream 1, for which there were no headers.
STRAY_DATA = bytes.fromhex("000005000100000001") + b"\0\0\0\0\0"
# A frame of 2**24 - 1 bytes.
HUGE_FRAME = bytes.fromhex("ffffff000000000001")

HALVES = [
    pytest.param(b"", id="nothing"),
    pytest.param(PREFACE[:10], id="half-a-preface"),
    pytest.param(PREFACE, id="a-preface"),
    pytest.param(PREFACE + SETTINGS[:5], id="half-a-frame-header"),
    pytest.param(PREFACE + SETTINGS + HALF_HEADERS, id="half-the-headers"),
    pytest.param(PREFACE + SETTINGS + STRAY_DATA, id="data-without-headers"),
    pytest.param(PREFACE + SETTINGS + HUGE_FRAME, id="a-huge-frame"),
    pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="http-1"),
    pytest.param(bytes.fromhex("16030100a5010000a10303") + bytes(100), id="tls"),
]


@pytest.fixture
def connect(server):
    host, port = server.address.rsplit(":", 1)

    def connected():
        return socket.create_connection((host, int(port)), timeout=30)

    return connected


@pytest.fixture(scope="module")
def expected(local):
    return outputs_of(local.answers([named(GOOD).SerializeToString()])[0])


def assert_answers(client, expected):
    answer = client.predict(dense=GOOD.dense, sparse=GOOD.sparse, weights=GOOD.weights)
    assert np.abs(answer["score"] - expected["score"]).max() <= 1e-6


@pytest.mark.parametrize("data", HALVES)
@pytest.mark.parametrize("how", ["and-closes", "and-resets", "and-stays"])
def test_half_a_message(connect, client, expected, data, how):
    with connect() as connection:
        connection.sendall(data)
        if how == "and-resets":
            linger_none = b"\x01\0\0\0\0\0\0\0"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_none)
        if how != "and-stays":
            connection.close()
        assert_answers(client, expected)


def test_random_bytes(connect, client, expected):
    chance = random.Random(0)
    for start in (b"", PREFACE, PREFACE + SETTINGS):
        for size in (1, 9, 100, 5000, 70000):
            with connect() as connection:
                try:
                    connection.sendall(start + chance.randbytes(size))
                except ConnectionError:  # Told to go before it had said everything.
                    continue
    assert_answers(client, expected)


def test_two_hundred_connections_that_say_nothing(connect, client, expected):
    with ExitStack() as connections:
        for _ in range(200):
            connections.enter_context(connect())
        assert_answers(client, expected)


def test_clients_that_hang_up_in_the_middle_of_a_call(server, client, expected):
    message = named(random_request(2000)).SerializeToString()
    for _ in range(20):
        with grpc.insecure_channel(server.address) as channel:
            predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
            for _ in range(5):
                predict.future(message, timeout=60)
        # Closing the channel cancels its calls, answered or not.
    assert_answers(client, expected)


def test_cancelled_calls_do_not_disturb_others(server, local):
    request = random_request(500)
    message = named(request).SerializeToString()
    score = outputs_of(local.answers([message])[0])["score"]
    with grpc.insecure_channel(server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        calls = [predict.future(message, timeout=60) for _ in range(60)]
        for call in calls[::2]:
            call.cancel()
        for call in calls[1::2]:
            assert np.abs(outputs_of(call.result())["score"] - score).max() <= 1e-6


def test_a_message_over_the_limit_is_refused_by_its_size(repository, expected):
    large = random_request(1000)
    with (
        serve(repository, max_message_bytes=4000) as small,
        Client(small.address, timeout_seconds=60) as client,
    ):
        with pytest.raises(RequestError, match=r"request: expected at most 4000 bytes, got \d+"):
            client.predict(dense=large.dense, sparse=large.sparse, weights=large.weights)
        assert_answers(client, expected)


def test_a_compressed_message_is_not_unpacked(server, client, expected):
    zeros = pb.PredictRequest(request_id="0" * (32 << 20)).SerializeToString()
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        with grpc.insecure_channel(server.address) as channel:
            predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
            call = predict.future(zeros, timeout=60, compression=compression)
            assert call.code() is Code.UNIMPLEMENTED
            assert "is disabled" in call.details()
    assert_answers(client, expected)


def test_a_call_without_a_message_is_told_so(server, client, expected):
    with grpc.insecure_channel(server.address) as channel:
        call = channel.stream_unary("/embershard.v1.Predictor/Predict").future(iter([]), timeout=60)
        assert call.code() is Code.INVALID_ARGUMENT
        assert call.details() == "the call has no message"
    assert_answers(client, expected)


def test_streams_of_nonsense_are_answered_and_ended_in_order(server, client, expected):
    """Each message by itself, in an answer that can be read, and the stream when its client is."""
    chance = random.Random(1)
    sent = [chance.randbytes(chance.randrange(300)) for _ in range(200)]
    with grpc.insecure_channel(server.address) as channel:
        stream = channel.stream_stream("/embershard.v1.Predictor/PredictStream")
        call = stream(iter(sent), timeout=60)
        answers = [pb.PredictResponse.FromString(answer) for answer in call]
        assert call.code() is Code.OK
    assert len(answers) == len(sent)
    assert all(answer.failure.code for answer in answers)
    assert_answers(client, expected)


@cases(
    "method",
    {
        "unknown-method": "/embershard.v1.Predictor/Guess",
        "unknown-service": "/embershard.v2.Predictor/Predict",
        "no-method": "/",
    },
)
def test_calls_of_what_is_not_there(server, client, expected, method):
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(b"", timeout=60)
    assert caught.value.code() is Code.UNIMPLEMENTED
    assert_answers(client, expected)
