"""Failure 4: a request that passes the door, and makes the model overflow, fails alone."""

import grpc
import numpy as np

from embershard.errors import EmbershardError
from tests.serving.asking import Asked, named, outputs_of, random_request
from tests.serving.refused import Code

# Every number in it is finite; its bag's sum is not.
POISONED = Asked(
    num_examples=2,
    dense={"age": [1.0], "price": [1.0, 1.0]},
    sparse={"tags": [[1], [2] * 8]},
    weights={"tags": [[1.0], [3e38] * 8]},
)
GOOD = [random_request(3, seed=11), random_request(4, seed=12)]


def bodies():
    return [named(asked).SerializeToString() for asked in (GOOD[0], POISONED, GOOD[1])]


def test_its_neighbours_in_one_batch_get_their_scores_bit_for_bit(local):
    first, poisoned, last = bodies()
    harmless = named(
        Asked(
            num_examples=2,
            dense=POISONED.dense,
            sparse=POISONED.sparse,
            weights={"tags": [[1.0], [1.0] * 8]},
        )
    ).SerializeToString()
    expected = local.predict_merged([first, harmless, last])
    got = local.predict_merged([first, poisoned, last])
    assert isinstance(got[1], EmbershardError)
    assert "at example 1" in str(got[1])
    for place in (0, 2):
        for name, values in outputs_of(expected[place]).items():
            assert outputs_of(got[place])[name].tobytes() == values.tobytes(), name


def test_over_the_wire_it_is_the_only_one_that_fails(server, local):
    first, poisoned, last = bodies()
    expected = [outputs_of(local.predict_merged([each])[0])["score"] for each in (first, last)]
    with grpc.insecure_channel(server.address) as channel:
        predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
        calls = [predict.future(each, timeout=60) for each in [first, poisoned, last] * 10]
        for place, call in enumerate(calls):
            if place % 3 == 1:
                assert call.code() not in (Code.OK, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
                assert "at example 1" in call.details()
            else:
                score = outputs_of(call.result())["score"]
                assert np.abs(score - expected[place % 3 // 2]).max() <= 1e-6
