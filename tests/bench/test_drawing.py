"""Drawn requests follow the schema, the options and the limits."""

from collections import Counter

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.drawing import MLPERF_EXAMPLES, TrafficOptions, draw_requests
from embershard.bench.id_sources import IdSource
from embershard.client.prediction import served_model
from embershard.errors import InputError
from tests.bench.fake_predictor import described
from tests.cases import cases

MODEL = served_model(described())
SOURCES = {
    "user": IdSource(size=3, first=1000, where="here"),
    "history": IdSource(size=40, where="here"),
    "item": IdSource(size=2, listed=np.array([-5, 2**62], np.int64), where="here"),
    "tags": IdSource(size=8, where="here"),
}


def draw(**options):
    return draw_requests(MODEL, SOURCES, TrafficOptions(**options))


def lists_of(drawn):
    """By feature the lists of one request, cut as the wire's page says; and the message."""
    message = pb.PredictRequest.FromString(drawn.message)
    count = message.num_examples
    lengths = np.frombuffer(message.packed.lengths, "<i4")
    values = np.frombuffer(message.packed.values, "<i8")
    assert len(lengths) == 2 + 2 * count
    assert lengths.sum() == len(values) == drawn.ids
    lists = np.split(values, np.cumsum(lengths))[:-1]
    return {
        "user": lists[:1],
        "history": lists[1:2],
        "item": lists[2 : 2 + count],
        "tags": lists[2 + count :],
    }, message


def test_requests_follow_the_schema():
    for drawn in draw(examples=((1, 7),), pool_requests=150):
        lists, message = lists_of(drawn)
        assert (message.model, message.version, message.label) == ("ranker", 0, "")
        assert message.packed.schema == 0xABC
        assert message.num_examples == drawn.examples
        assert 1 <= drawn.examples <= 7
        assert len(message.packed.request_dense) == 4
        assert len(message.packed.example_dense) == 4 * 2 * drawn.examples
        tags = sum(len(tag) for tag in lists["tags"])
        assert len(message.packed.weights) == 4 * tags
        assert np.isfinite(np.frombuffer(message.packed.example_dense, "<f4")).all()


def test_ids_are_those_that_are_known():
    seen = {name: Counter() for name in SOURCES}
    for drawn in draw(examples=((5, 5),), pool_requests=200):
        for name, lists in lists_of(drawn)[0].items():
            seen[name].update(np.concatenate(lists).tolist())
    assert set(seen["user"]) == {1000, 1001, 1002}
    assert set(seen["item"]) == {-5, 2**62}
    assert set(seen["tags"]) == set(range(8))
    assert set(seen["history"]) <= set(range(40))


def test_lengths_reach_the_limit_and_are_one_without():
    lengths = {name: Counter() for name in SOURCES}
    for drawn in draw(examples=((3, 3),), pool_requests=300):
        for name, lists in lists_of(drawn)[0].items():
            lengths[name].update(len(ids) for ids in lists)
    assert set(lengths["user"]) == set(lengths["item"]) == {1}
    assert set(lengths["tags"]) == {0, 1, 2, 3}
    assert set(lengths["history"]) == set(range(21))


def test_lengths_are_those_asked_for():
    for drawn in draw(lengths={"": (2, 4), "user": (0, 0)}, pool_requests=50):
        lists = lists_of(drawn)[0]
        assert len(lists["user"][0]) == 0
        assert len(lists["item"][0]) in {2, 3, 4}
        assert len(lists["tags"][0]) in {2, 3}  # No more than the schema allows.


def test_uniform_ids_are_all_as_likely():
    drawn = draw(zipf_alpha=None, examples=((50, 50),), pool_requests=100)
    tags = np.concatenate([np.concatenate(lists_of(request)[0]["tags"]) for request in drawn])
    seen = np.bincount(tags, minlength=8)
    expected = len(tags) / 8
    assert ((seen - expected) ** 2 / expected).sum() < 7 + 4 * np.sqrt(14) + 4


def test_mlperf_sizes_have_its_mean_and_its_quantiles():
    sizes = [low for low, high in MLPERF_EXAMPLES if low == high]
    assert len(sizes) == 20
    assert sum(sizes) / 20 == 270
    assert Counter(sizes)[200] == 12


def test_a_seed_gives_the_same_requests_and_another_others():
    assert draw(pool_requests=5) == draw(pool_requests=5)
    assert draw(pool_requests=5) != draw(pool_requests=5, seed=1)


@pytest.mark.parametrize(("options", "sent"), [({}, 0), ({"priority": "background"}, 2)])
def test_requests_carry_the_priority_asked_for(options, sent):
    drawn = draw(pool_requests=3, **options)
    assert {pb.PredictRequest.FromString(request.message).priority for request in drawn} == {sent}


def test_the_pool_is_bounded_in_bytes():
    assert len(draw(pool_requests=5000, pool_bytes_max=1)) == 100  # One chunk.
    assert len(draw(pool_requests=250)) == 250


@cases(
    ("options", "message"),
    {
        "examples": ({"examples": ((1, 101),)}, "at most 100, the server's limit"),
        "ids": (
            {"lengths": {"item": (200, 200)}, "examples": ((10, 10),)},
            "the server takes 1000: expected fewer examples or shorter lists",
        ),
        "max-ids": ({"lengths": {"tags": (1, 4)}}, "at most 3 ids for 'tags', got 4"),
        "unknown-name": ({"lengths": {"tag": (1, 4)}}, "'tag' is no sparse input"),
        "no-pool": ({"pool_requests": 0}, "pool: expected 1"),
        "seed": ({"seed": -1}, "seed: expected 0 .. "),
    },
)
def test_what_cannot_be_sent_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        draw(**options)


def test_a_message_over_the_limit_is_refused():
    message = described()
    message.limits.max_message_bytes = 40
    with pytest.raises(InputError):
        draw_requests(served_model(message), SOURCES, TrafficOptions(pool_requests=1))
