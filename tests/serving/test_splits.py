"""However examples are split into requests, and requests merged into batches: the same scores."""

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard._proto import predictor_pb2 as pb
from tests.cases import cases
from tests.serving.asking import Asked, named, outputs_of, random_request, requests
from tests.serving.failures.busy import WAIT_SECONDS, outcomes, predictor
from tests.serving.messages import MessagePredictor
from tests.serving.serve import serve

TOLERANCE = 1e-6
BATCH_EXAMPLES = 4096


@st.composite
def split_requests(draw):
    """Requests of different users, and cuts of each into parts: (whole, sizes of its parts)."""
    wholes = draw(st.lists(requests(max_examples=8), min_size=1, max_size=4))
    return [(whole, draw(parts_of(whole.num_examples))) for whole in wholes]


@st.composite
def parts_of(draw, count):
    sizes = []
    while count:
        sizes.append(draw(st.integers(1, count)))
        count -= sizes[-1]
    return sizes


def cut(whole: Asked, sizes):
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return [whole.examples(start, size) for start, size in zip(starts, sizes, strict=True)]


def alone(local, request):
    (answer,) = local.answers([named(request).SerializeToString()])
    return outputs_of(answer)


def assert_same(got, expected, tolerance=TOLERANCE):
    for name in ("score", "parts"):
        values = np.concatenate([part[name] for part in got])
        assert np.abs(values - expected[name]).max() <= tolerance, name
    for part in got:
        assert np.abs(part["user_vector"] - expected["user_vector"]).max() <= tolerance


@settings(deadline=None)
@given(split=split_requests())
def test_any_split_alone_or_merged(local, split):
    expected = [alone(local, whole) for whole, _ in split]
    parts = [cut(whole, sizes) for whole, sizes in split]

    for chunks, scores in zip(parts, expected, strict=True):
        assert_same([alone(local, chunk) for chunk in chunks], scores)

    messages = [named(chunk).SerializeToString() for chunks in parts for chunk in chunks]
    answers = iter(local.answers(messages))
    for chunks, scores in zip(parts, expected, strict=True):
        assert_same([outputs_of(next(answers)) for _ in chunks], scores)


@cases(
    "sizes",
    {
        "all-but-one-and-one": [BATCH_EXAMPLES - 1, 1],
        "one-at-either-end": [1, BATCH_EXAMPLES - 2, 1],
        "sixty-fours": [64] * (BATCH_EXAMPLES // 64),
        "uneven": [1000, 3000, 96],
    },
)
def test_a_request_as_large_as_a_batch(local, client, sizes):
    whole = random_request(BATCH_EXAMPLES)
    expected = alone(local, whole)
    served = client.predict(dense=whole.dense, sparse=whole.sparse, weights=whole.weights)
    assert_same([served], expected)
    messages = [named(chunk).SerializeToString() for chunk in cut(whole, sizes)]
    assert_same([outputs_of(answer) for answer in local.answers(messages)], expected)


@pytest.mark.parametrize("plan", ["default", "2xcpu"])
@pytest.mark.parametrize("tables", ["mmap", "resident"])
@pytest.mark.parametrize("threads", [1, 2])
def test_plan_and_residency_do_not_change_one_bit(local, package, plan, tables, threads):
    request = random_request(300)
    other = MessagePredictor(package, plan=plan, tables=tables, threads=threads)
    got, expected = alone(other, request), alone(local, request)
    for name, values in expected.items():
        if threads == 1:
            assert got[name].tobytes() == values.tobytes(), name
        else:  # The dense program's sums may be cut among threads.
            assert np.abs(got[name] - values).max() <= TOLERANCE


def unknown_of(answer):
    return {
        count.feature: count.count for count in pb.PredictResponse.FromString(answer).unknown_ids
    }


def test_a_request_cut_into_ten_batches_is_answered_as_a_whole(repository, local):
    message = named(random_request(160, seed=21)).SerializeToString()
    expected = local.answers([message])[0]
    with (
        serve(repository, max_batch_examples=16) as cut,
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
