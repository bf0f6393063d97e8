"""Scores of the MovieLens package: Triton's are our own server's, alone or merged."""

import queue

import numpy as np
import pytest
import tritonclient.grpc as triton

from embershard.serving import Server, ServerOptions
from embershard.serving.triton import TritonOptions, write_model_config
from tests.serving.test_movielens import as_asked
from tests.serving.triton.asking import inputs_of
from tests.serving.triton.running import serving

pytestmark = [pytest.mark.needs_triton, pytest.mark.slow, pytest.mark.timeout(600)]

SIZES = [1, 2, 3, 7, 16, 33, 64, 100, 257, 499, 500]
USERS = 4
TOLERANCE = 1e-6
WAIT_SECONDS = 60


@pytest.fixture(
    scope="module",
    params=[("default", "default"), ("two", "two"), ("torch", "default")],
    ids=["1-device", "2-devices", "torch-cpu"],
)
def both(request, movielens_package):
    """Clients of our server and of Triton, which serve one package. Torch's kernels are compared
    with our own."""
    repository = movielens_package.parents[1]
    plan, our_plan = request.param
    # So that requests which come together are merged, however quick the model is.
    options = TritonOptions(
        plan=plan, threads=1, max_queue_delay_us=20_000, default_timeout_ms=60_000
    )
    write_model_config(movielens_package, options, force=True)
    with (
        Server(
            repository,
            options=ServerOptions(port=0, threads=1, default_timeout_ms=60_000, plan=our_plan),
        ) as ours,
        serving(repository, "movielens") as theirs,
        triton.InferenceServerClient(ours.address) as our_client,
        triton.InferenceServerClient(theirs.grpc) as their_client,
    ):
        yield our_client, their_client


@pytest.fixture(scope="module")
def inputs(movielens):
    """One list a request: users in turn, each with candidates of every size."""
    return [
        inputs_of(as_asked(movielens, movielens.ranking_request(user, candidates=size).request))
        for user in map(int, movielens.test_users[:USERS])
        for size in SIZES
    ]


def score(result):
    return result.as_numpy("score").reshape(-1)


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE, strict=True)


def test_alone(both, inputs):
    ours, theirs = both
    for item in inputs:
        close(score(theirs.infer("movielens", item)), score(ours.infer("movielens", item)))


def test_merged(both, inputs):
    ours, theirs = both
    before = executions(theirs)
    answers = queue.Queue()
    for number, item in enumerate(inputs):
        theirs.async_infer(
            "movielens",
            item,
            lambda result, error: answers.put((result, error)),
            request_id=str(number),
            client_timeout=WAIT_SECONDS,
        )
    seen = set()
    for _ in inputs:
        result, error = answers.get(timeout=WAIT_SECONDS)
        assert error is None, error
        number = int(result.get_response().id)
        seen.add(number)
        close(score(result), score(ours.infer("movielens", inputs[number])))
    assert len(seen) == len(inputs)
    assert executions(theirs) - before < len(inputs)


def executions(client):
    (counted,) = client.get_inference_statistics("movielens").model_stats
    return counted.execution_count
