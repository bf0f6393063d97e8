"""Requests of ten batches and more: cut, run between others, and answered once.

No test looks at a clock, only at what comes before what.
"""

import grpc
import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.serving import Server, ServerOptions
from tests.serving.asking import named, outputs_of, random_request
from tests.serving.failures.busy import (
    WAIT_SECONDS,
    body,
    export_heavy,
    is_idle,
    outcomes,
    predictor,
    serving_heavy,
    until,
)
from tests.serving.models import CATEGORIES
from tests.serving.refused import Code

PIECE = 64
PIECES = 64
LARGE = PIECE * PIECES


@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    return export_heavy(tmp_path_factory.mktemp("heavy"))


@pytest.fixture
def server(heavy):
    with serving_heavy(heavy, max_batch_examples=PIECE) as running:
        yield running


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address) as connected:
        yield connected


def begin(server, channel, **call):
    """Sends a large request; some piece of it has run, and not the last, when this returns."""
    before = server.metrics().total("embershard_batches")
    running = predictor(channel).future(body(LARGE), **call)
    until(lambda: server.metrics().total("embershard_batches") > before)
    return running


def unknown_of(answer):
    return {
        count.feature: count.count for count in pb.PredictResponse.FromString(answer).unknown_ids
    }


def test_every_output_is_that_of_the_request_run_whole(repository, local):
    message = named(random_request(160, seed=21)).SerializeToString()
    expected = local.answers([message])[0]
    with (
        Server(repository, options=ServerOptions(port=0, threads=1, max_batch_examples=16)) as cut,
        grpc.insecure_channel(cut.address) as channel,
    ):
        got = predictor(channel)(message, timeout=WAIT_SECONDS)
        metrics = cut.metrics()
        counted = outcomes(cut)
    for name, values in outputs_of(expected).items():
        assert outputs_of(got)[name].shape == values.shape
        # Products of matrices are summed in an order that depends on their size.
        assert np.abs(outputs_of(got)[name] - values).max() <= 1e-6, name
    assert unknown_of(got) == unknown_of(expected) != {}
    assert metrics.total("embershard_batches") == 10
    assert counted == {("OK", ""): 1}
    for name in ("request_seconds", "queue_seconds", "request_examples", "request_ids"):
        assert metrics.total(f"embershard_{name}") == 1, name


def test_a_refusal_and_a_failure_name_the_example_of_the_whole(repository):
    request = random_request(100, seed=22)
    request.sparse["category"][77] = [CATEGORIES]
    poisoned = random_request(100, seed=22)
    poisoned.sparse["tags"][66] = [2] * 8
    poisoned.weights["tags"][66] = [3e38] * 8
    options = ServerOptions(port=0, threads=1, max_batch_examples=16)
    with Server(repository, options=options) as cut, grpc.insecure_channel(cut.address) as channel:
        refused = predictor(channel).future(
            named(request).SerializeToString(), timeout=WAIT_SECONDS
        )
        assert refused.code() is Code.INVALID_ARGUMENT
        assert "feature 'category': id 6 at example 77, position 0" in refused.details()
        failed = predictor(channel).future(
            named(poisoned).SerializeToString(), timeout=WAIT_SECONDS
        )
        assert failed.code() is Code.INTERNAL
        assert "at example 66 is not finite" in failed.details()
        until(lambda: is_idle(cut))


def test_small_ones_are_answered_while_it_runs(server, channel):
    large = begin(server, channel, timeout=WAIT_SECONDS)
    for seed in range(3):
        score = outputs_of(predictor(channel)(body(2, seed), timeout=WAIT_SECONDS))["score"]
        assert score.shape == (2,)
        assert not large.done()
    assert outputs_of(large.result())["score"].shape == (LARGE,)
    assert outcomes(server) == {("OK", ""): 4}


def test_at_its_deadline_it_is_answered_once_and_no_more_of_it_runs(server, channel):
    message = pb.PredictRequest.FromString(body(LARGE))
    message.timeout_ms = 100
    late = predictor(channel).future(message.SerializeToString(), timeout=WAIT_SECONDS)
    assert late.code() is Code.DEADLINE_EXCEEDED
    until(lambda: is_idle(server))
    assert outputs_of(predictor(channel)(body(2), timeout=WAIT_SECONDS))["score"].shape == (2,)
    assert server.metrics().total("embershard_batches") < PIECES
    assert outcomes(server) == {("OK", ""): 1, ("DEADLINE_EXCEEDED", "expired"): 1}


def test_it_leaves_with_its_client(server, channel):
    begin(server, channel, timeout=WAIT_SECONDS).cancel()
    until(lambda: is_idle(server))
    assert outputs_of(predictor(channel)(body(2), timeout=WAIT_SECONDS))["score"].shape == (2,)
    assert server.metrics().total("embershard_batches") < PIECES
    assert outcomes(server) == {("OK", ""): 1, ("DEADLINE_EXCEEDED", "abandoned"): 1}


def test_background_priority_runs_beside_interactive_ones(server, channel):
    message = pb.PredictRequest.FromString(body(LARGE))
    message.priority = pb.PRIORITY_BACKGROUND
    large = predictor(channel).future(message.SerializeToString(), timeout=WAIT_SECONDS)
    until(lambda: server.metrics().total("embershard_batches") > 0)
    assert outputs_of(predictor(channel)(body(2), timeout=WAIT_SECONDS))["score"].shape == (2,)
    assert not large.done()
    assert outputs_of(large.result())["score"].shape == (LARGE,)


def test_a_server_that_stops_answers_it_whole(heavy):
    with (
        serving_heavy(heavy, max_batch_examples=PIECE) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        large = begin(server, channel, timeout=WAIT_SECONDS)
        server.stop()
        assert outputs_of(large.result())["score"].shape == (LARGE,)
