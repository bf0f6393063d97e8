"""Failure 3: lengths that do not fit are INVALID_ARGUMENT, and neighbours in the batch unaffected.

`tests/serving/test_bad_input.py` has the words of every refusal; here is each kind of this failure,
in a batch with good requests on both sides, over the wire.
"""

import grpc
import numpy as np
import pytest

from tests.cases import cases
from tests.serving.asking import named, outputs_of, packed, random_request
from tests.serving.refused import GOOD, NAMED, PACKED, Code, message_of

REFUSED = {case.name: (case, case in PACKED) for case in (*NAMED, *PACKED)}
ROUNDS = 5


@cases(
    "name",
    {
        "sum-is-not-values": "lengths-that-do-not-sum-to-values",
        "sum-is-not-values-packed": "packed-values-too-many",
        "negative": "negative-length",
        "negative-packed": "packed-negative-length",
        "int32-overflow": "sums-past-two-to-the-31",
        "int32-overflow-that-wraps": "sums-that-wrap-to-the-right-one",
        "int32-overflow-packed": "packed-sums-past-two-to-the-31",
        "truncated-values": "half-a-value",
        "truncated-lengths": "half-a-length",
        "truncated-values-packed": "packed-half-a-value",
        "both-forms-mixed": "packed-and-named",
        "wrong-kind": "sparse-feature-sent-as-dense",
        "too-few-lengths": "packed-lengths-missing-one",
    },
)
def test_is_refused_alone(server, local, fingerprint, name):
    case, is_packed = REFUSED[name]
    bad = message_of(case, is_packed=is_packed, fingerprint=fingerprint)
    good = [named(random_request(size, seed=size)).SerializeToString() for size in (3, 5)]
    scores = [outputs_of(local.answers([message])[0])["score"] for message in good]
    with grpc.insecure_channel(server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        row = [good[0], bad, good[1]] * ROUNDS
        calls = [predict.future(message, timeout=60) for message in row]
        assert [call.code() for call in calls] == [
            Code.OK,
            Code.INVALID_ARGUMENT,
            Code.OK,
        ] * ROUNDS
        for place in (0, 2):
            for call in calls[place::3]:
                got = outputs_of(call.result())["score"]
                assert np.abs(got - scores[place // 2]).max() <= 1e-6


def no_features(message):
    message.ClearField("dense")
    message.ClearField("sparse")


@pytest.mark.parametrize("form", ["named", "packed"])
def test_a_request_of_no_features_is_told_which_it_lacks(server, fingerprint, form):
    if form == "named":
        message, words = named(GOOD), "feature 'age': missing: expected 1 values"
        no_features(message)
    else:
        message, words = packed(GOOD, fingerprint), "packed.request_dense: expected 2"
        schema = message.packed.schema
        message.packed.Clear()
        message.packed.schema = schema
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary("/embershard.v1.Predictor/Predict").future(
            message.SerializeToString(), timeout=60
        )
        assert call.code() is Code.INVALID_ARGUMENT
        assert call.details().startswith(words)
