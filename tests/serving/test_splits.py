"""However examples are split into requests, and requests merged into batches: the same scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard._proto import predictor_pb2 as pb
from embershard.errors import RequestError
from tests.cases import cases
from tests.serving.asking import Asked, named, outputs_of, random_request, requests
from tests.serving.messages import MessagePredictor

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


def test_one_example_more_than_a_batch_is_refused(client):
    with pytest.raises(RequestError, match=r"num_examples: expected 1\.\.4096, got 4097"):
        client.predict(dense={"age": 1, "price": np.zeros(4097)})


def test_merging_mixes_no_unknown_id_counts(local):
    dense = {"age": [0.0], "price": [0.0]}
    requests = [
        Asked(1, dense=dense, sparse={"item": [[7, 8]]}),
        Asked(1, dense=dense, sparse={"item": [[100]]}),
        Asked(1, dense=dense, sparse={"user": [["nobody"]]}),
    ]
    answers = local.answers([named(request).SerializeToString() for request in requests])
    counts = [
        {unknown.feature: unknown.count for unknown in message.unknown_ids}
        for message in map(pb.PredictResponse.FromString, answers)
    ]
    assert counts == [{"item": 2}, {}, {"user": 1}]


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
