"""Streams of the clients, on a server: the answers and errors of `predict`, many at a time."""

import asyncio
import queue

import grpc
import numpy as np
import pytest

from embershard.bench import LoadOptions, run_load
from embershard.bench.load_options import PooledRequest
from embershard.bench.target import find_target
from embershard.client import AsyncClient, Client
from embershard.errors import InputError, RequestError, UnavailableError
from tests.serving.asking import named, random_request
from tests.serving.serve import serve

TIMEOUT_SECONDS = 60


def inputs(seed: int) -> dict:
    request = random_request(1 + seed % 5, seed=seed)
    return {
        "dense": request.dense,
        "sparse": request.sparse,
        "weights": request.weights,
        "num_examples": request.num_examples,
    }


def same(one, other):
    """Scores, up to what a batch's size does to them."""
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=2e-6)


def test_futures_hold_the_answers_that_predict_gives(client):
    with client.stream("ranker", in_flight=8) as stream:
        answers = [stream.predict(**inputs(seed), request_id=f"r{seed}") for seed in range(40)]
    for seed, answer in enumerate(answers):
        assert answer.done()  # A closed stream has answered all.
        assert answer.result().request_id == f"r{seed}"
        same(answer.result(), client.predict("ranker", **inputs(seed)))


@pytest.mark.parametrize(
    "method",
    ["embershard.v1.Predictor/PredictStream", "inference.GRPCInferenceService/ModelStreamInfer"],
)
def test_headers_come_before_the_first_request(server, method):
    sent = queue.SimpleQueue()  # Stays empty: the client waits for headers.
    with grpc.insecure_channel(server.address) as channel:
        call = channel.stream_stream(f"/{method}")(iter(sent.get, None), timeout=TIMEOUT_SECONDS)
        call.initial_metadata()  # Waits for the headers.
        assert call.is_active()
        sent.put(None)
        assert call.code() is grpc.StatusCode.OK


def test_a_bad_request_fails_alone_as_predict_fails(client):
    bad = {**inputs(1), "outputs": ["nothing"]}
    with pytest.raises(Exception) as told:
        client.predict("ranker", **bad)
    with client.stream("ranker") as stream:
        before, failed = stream.predict(**inputs(1)), stream.predict(**bad)
        behind = stream.predict(**inputs(1))
    assert type(failed.exception()) is type(told.value)
    assert str(failed.exception()) == str(told.value)
    same(before.result(), behind.result())


def test_a_closed_stream_and_a_closed_client_say_so(server):
    with Client(server.address, timeout_seconds=TIMEOUT_SECONDS) as client:
        with client.stream("ranker") as stream:
            pass
        with pytest.raises(InputError, match="expected an open stream"):
            stream.predict(**inputs(1))
        stream.close()
    with pytest.raises(InputError, match="open client"):
        client.stream("ranker")


def test_requests_fail_on_a_stream_that_the_server_ended(
    repository,
):
    with serve(repository) as server:
        client = Client(server.address, timeout_seconds=TIMEOUT_SECONDS)
        stream = client.stream("ranker")
        stream.predict(**inputs(1)).result()
    stream._reader.join(TIMEOUT_SECONDS)  # Waits until the client knows that the server has ended.
    with pytest.raises(UnavailableError, match="shutting down"):
        stream.predict(**inputs(1))
    stream.close()
    client.close()


def test_asyncio_gives_the_same_answers_and_errors(client, server):
    async def ask():
        async with (
            AsyncClient(server.address, timeout_seconds=TIMEOUT_SECONDS) as connected,
            connected.stream("ranker", in_flight=8) as stream,
        ):
            alone = await connected.predict("ranker", **inputs(3))
            bad = stream.predict(**inputs(1), outputs=["nothing"])
            many = [stream.predict(**inputs(seed), request_id=f"r{seed}") for seed in range(40)]
            answers = await asyncio.gather(*many, bad, return_exceptions=True)
            with pytest.raises(RequestError, match="'colour'"):
                await stream.predict(sparse={"colour": [[1]]})
            return alone, answers

    alone, (*answers, failed) = asyncio.run(ask())
    same(alone, client.predict("ranker", **inputs(3)))
    for seed, answer in enumerate(answers):
        assert answer.request_id == f"r{seed}"
        same(answer, client.predict("ranker", **inputs(seed)))
    with pytest.raises(type(failed)) as told:
        client.predict("ranker", **inputs(1), outputs=["nothing"])
    assert str(failed) == str(told.value)


def test_the_load_tool_counts_streams_requests_as_calls(server):
    requests = [random_request(2, seed=seed) for seed in range(10)]
    pool = [PooledRequest(named(request).SerializeToString(), 2, 1) for request in requests]
    options = LoadOptions(
        in_flight=16,
        max_requests=500,
        duration_seconds=TIMEOUT_SECONDS,
        warmup_seconds=0,
        timeout_seconds=TIMEOUT_SECONDS,
        streams=3,
        connections=2,
    )
    before = server.answered()
    result = run_load(find_target(server.address), pool, options)
    assert result.by_code == {"OK": 500}
    assert result.examples_ok == 1000
    assert server.answered() == before + 500
