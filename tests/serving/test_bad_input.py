"""Bad requests are answered with what is wrong with them, and disturb no other."""

import random

import grpc
import numpy as np
import pytest

from tests.serving.asking import named, outputs_of, packed, random_request
from tests.serving.refused import CASES, GOOD, NAMED, PACKED, Code, message_of

NEIGHBOURS = [random_request(5, seed=1), random_request(2, seed=2)]
TOLERANCE = 1e-6


@pytest.fixture
def predict(server):
    """Sends bytes, gets bytes."""
    with grpc.insecure_channel(server.address) as channel:
        yield channel.unary_unary("/embershard.v1.Predictor/Predict")


def test_what_the_cases_spoil_is_good(local, fingerprint):
    # In a batch each: a neighbour may change the last bits.
    messages = [named(GOOD).SerializeToString(), packed(GOOD, fingerprint).SerializeToString()]
    first, second = (outputs_of(local.answers([message])[0]) for message in messages)
    assert first["score"].tobytes() == second["score"].tobytes()


@pytest.mark.parametrize(("refused", "is_packed"), CASES)
def test_is_refused_over_the_wire(predict, fingerprint, refused, is_packed):
    bad = message_of(refused, is_packed=is_packed, fingerprint=fingerprint)
    with pytest.raises(grpc.RpcError) as caught:
        predict(bad, timeout=60)
    assert caught.value.code() is refused.code
    assert refused.matches(caught.value.details()), caught.value.details()


def test_good_requests_among_bad_ones_at_the_same_time(local, predict, fingerprint):
    good = [named(request).SerializeToString() for request in NEIGHBOURS]
    expected = [outputs_of(local.answers([message])[0])["score"] for message in good]
    bad = [message_of(case, is_packed=False, fingerprint=fingerprint) for case in NAMED]
    bad += [message_of(case, is_packed=True, fingerprint=fingerprint) for case in PACKED]
    sent = [(number % 2, good[number % 2]) for number in range(100)] + [(None, b) for b in bad]
    random.Random(0).shuffle(sent)
    calls = [(which, predict.future(message, timeout=60)) for which, message in sent]
    for which, call in calls:
        if which is None:
            assert call.code() in (Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION)
        else:
            score = outputs_of(call.result())["score"]
            assert np.abs(score - expected[which]).max() <= TOLERANCE


def test_bytes_that_are_no_message_are_refused(predict):
    with pytest.raises(grpc.RpcError) as caught:
        predict(b"\xff\xff\xff", timeout=60)
    assert caught.value.code() is Code.INVALID_ARGUMENT
    assert caught.value.details() == "the message is not a PredictRequest"


def codes_of(predict, messages):
    calls = [predict.future(message, timeout=60) for message in messages]
    return [call.code() for call in calls]


def test_every_prefix_of_a_message_is_answered(predict):
    whole = named(GOOD).SerializeToString()
    codes = codes_of(predict, [whole[:size] for size in range(len(whole) + 1)])
    assert codes[-1] is Code.OK
    assert set(codes) <= {Code.OK, Code.INVALID_ARGUMENT, Code.NOT_FOUND}
    assert codes.count(Code.INVALID_ARGUMENT) > len(whole) // 2


def test_random_flips_of_bits_are_answered(predict, fingerprint):
    chance = random.Random(1)
    good = packed(GOOD, fingerprint).SerializeToString()
    flipped = []
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        flipped.append(bytes(data))
    codes = set(codes_of(predict, flipped))
    refused = {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION}
    assert {Code.OK, Code.INVALID_ARGUMENT} <= codes <= refused | {Code.OK}
