"""`--traffic canary=50`: which version answers the requests that name none."""

import asyncio
import re
from collections import Counter

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from embershard.client import AsyncClient, Client
from embershard.errors import ConfigError, InputError
from embershard.package.labels import write_label
from embershard.serving.traffic_split import parse_weights
from tests.cases import cases
from tests.serving.open_inference.tensors import infer_inputs
from tests.serving.serve import serve
from tests.serving.test_torchrec import PREDICT, floats, lists, number
from tests.serving.versions import STEP, publish

USERS = [f"user-{number}" for number in range(64)]
INPUTS = {"dense": {"price": [5.0]}, "sparse": {"item": [[3]]}}
TENSORS = {
    "DENSE": np.array([[5.0]], "<f4"),
    "LENGTHS": np.array([1], "<i4"),
    "VALUES": np.array([3], "<i8"),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Version 1, labelled stable, and version 2, labelled canary."""
    folder = tmp_path_factory.mktemp("published")
    for version, label in ((1, "stable"), (2, "canary")):
        publish(folder, version)
        write_label(folder, "ranker", label, version)
    return folder


def split_server(repository, traffic="canary=50"):
    return serve(repository, default_timeout_ms=60_000, traffic=traffic)


@pytest.fixture(scope="module")
def server(published):
    with split_server(published) as server:
        yield server


@pytest.fixture
def client(server):
    with Client(server.address, timeout_seconds=60) as client:
        yield client


def version_of(answer):
    """Which version gave the scores: the response says so, too."""
    assert round(float(answer["score"][0]) / STEP) == answer.version
    return answer.version


def versions_of(client):
    """By user."""
    return {
        user: version_of(client.predict("ranker", **INPUTS, traffic_key=user)) for user in USERS
    }


def test_a_traffic_key_always_gets_the_same_version(client, published):
    first = versions_of(client)
    assert set(first.values()) == {1, 2}
    assert versions_of(client) == first
    with split_server(published) as other, Client(other.address, timeout_seconds=60) as again:
        assert versions_of(again) == first


def test_streams_and_the_async_client_split_by_the_same_key(client, server):
    first = versions_of(client)
    with client.stream("ranker") as stream:
        futures = {user: stream.predict(**INPUTS, traffic_key=user) for user in USERS}
    assert {user: version_of(future.result()) for user, future in futures.items()} == first

    async def ask():
        async with AsyncClient(server.address, timeout_seconds=60) as asynchronous:
            calls = [asynchronous.predict("ranker", **INPUTS, traffic_key=user) for user in USERS]
            async with asynchronous.stream("ranker") as stream:
                streamed = [stream.predict(**INPUTS, traffic_key=user) for user in USERS]
                return await asyncio.gather(*calls), await asyncio.gather(*streamed)

    for answers in asyncio.run(ask()):
        assert [version_of(answer) for answer in answers] == list(first.values())


def test_open_inference_requests_are_split_by_a_parameter(client, server):
    first = versions_of(client)
    triton_client = triton.InferenceServerClient(server.address)
    with triton_client:
        inputs = infer_inputs(TENSORS)
        for user, version in first.items():
            answer = triton_client.infer("ranker", inputs, parameters={"traffic_key": user})
            assert answer.get_response().model_version == str(version)
            assert round(float(answer.as_numpy("score")[0]) / STEP) == version
            named = triton_client.infer("ranker", inputs, "1", parameters={"traffic_key": user})
            assert named.get_response().model_version == "1"
        without = {
            triton_client.infer("ranker", inputs).get_response().model_version for _ in range(64)
        }
        assert without == {"1", "2"}
        with pytest.raises(InferenceServerException, match="'traffic_key': expected a text of at"):
            triton_client.infer("ranker", inputs, parameters={"traffic_key": 17})


def test_requests_of_torchrecs_protocol_are_split_at_random(server):
    message = number(1, 1) + floats(2, 1, [5.0]) + lists(3, 1, [1], [3])
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(PREDICT)
        scores = {
            round(float(np.frombuffer(call(message, timeout=60)[-4:], "<f4")[0]) / STEP)
            for _ in range(64)
        }
    assert scores == {1, 2}


def test_requests_are_counted_by_the_version_that_answers(published):
    with split_server(published) as server, Client(server.address, timeout_seconds=60) as client:
        expected = Counter(versions_of(client).values())
        counted = server.metrics().by("embershard_examples", "version")
    assert counted == {str(version): count for version, count in expected.items()}


def test_the_schema_is_asked_of_the_default_version(client):
    assert {client.get_model("ranker").version for _ in range(32)} == {1}


@cases(
    ("key", "words"),
    {
        "long": ("k" * 1025, "traffic_key: expected at most 1024 bytes, got 1025"),
        "number": (17, "traffic_key: expected text, got 17"),
    },
)
def test_a_traffic_key_is_a_text_of_bounded_size(client, key, words):
    with pytest.raises(InputError, match=words):
        client.predict("ranker", **INPUTS, traffic_key=key)


def test_weights_are_named_by_model():
    assert parse_weights("") == {}
    assert parse_weights("ranker=2,a=b=0.5") == {"ranker": 2.0, "a=b": 0.5}


WEIGHT = "expected a number in 0.001..1000 with at most 3 decimals"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ranker", "expected NAME=WEIGHT such as ranker=2, got 'ranker'"),
        ("=2", "expected NAME=WEIGHT such as ranker=2, got '=2'"),
        ("ranker=-1", f"ranker: {WEIGHT}, got '-1'"),
        ("ranker=nan", f"ranker: {WEIGHT}, got 'nan'"),
        ("ranker=", f"ranker: {WEIGHT}, got ''"),
        ("ranker=2,ranker=3", "duplicate model 'ranker' in 'ranker=2,ranker=3'"),
        ("ranker=0", f"ranker: {WEIGHT}, got '0'"),
        ("ranker=1001", f"ranker: {WEIGHT}, got '1001'"),
    ],
    ids=["no weight", "no name", "negative", "nan", "empty", "twice", "zero", "too large"],
)
def test_other_weights_are_refused(text, message):
    with pytest.raises(ConfigError, match=re.escape(f"model_weights: {message}")):
        parse_weights(text)
