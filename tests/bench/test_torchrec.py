"""Requests in TorchRec's protocol, against bytes laid out by hand."""

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.load_options import PooledRequest
from embershard.bench.protocols import in_protocol
from embershard.client import ServedInput
from embershard.errors import InputError
from tests.bench.test_open_inference import INPUTS, model
from tests.serving.test_torchrec import floats, lists, number

# price, age and likes, so that the scopes alternate; user and brand without weights, tags with.
MIXED = (
    INPUTS[1],
    INPUTS[0],
    INPUTS[2],
    INPUTS[3],
    ServedInput(name="brand", kind="sparse", scope="example"),
    INPUTS[4],
)


def pooled(message):
    return PooledRequest(message.SerializeToString(), message.num_examples, ids=0)


def request():
    """Two examples: user [7 8], brands [1] and [], tags [2 3] and [4]."""
    return pb.PredictRequest(
        num_examples=2,
        packed=pb.Packed(
            schema=7,
            request_dense=np.array([30], "<f4").tobytes(),
            example_dense=np.array([1, 2, 3, 4], "<f4").tobytes(),
            lengths=np.array([2, 1, 0, 2, 1], "<i4").tobytes(),
            values=np.array([7, 8, 1, 2, 3, 4], "<i8").tobytes(),
            weights=np.array([0.5, 1, 2], "<f4").tobytes(),
        ),
    )


def test_a_request_says_the_same():
    (converted,) = in_protocol("torchrec", model(*MIXED), [pooled(request())])
    assert converted.examples == 2
    expected = (
        number(1, 2)
        + floats(2, 3, [1, 30, 2, 3, 30, 4])
        + lists(3, 2, [2, 2, 1, 0], [7, 8, 7, 8, 1])
        + lists(4, 1, [2, 1], [2, 3, 4], [0.5, 1, 2])
    )
    assert converted.message == expected


def test_groups_that_a_model_does_not_have_are_not_sent():
    ours = pb.PredictRequest(
        num_examples=1,
        packed=pb.Packed(
            lengths=np.array([1], "<i4").tobytes(), values=np.array([9], "<i8").tobytes()
        ),
    )
    (converted,) = in_protocol("torchrec", model(INPUTS[3]), [pooled(ours)])
    assert converted.message == number(1, 1) + lists(3, 1, [1], [9])


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_an_id_of_more_than_32_bits_is_refused(value):
    ours = request()
    ours.packed.values = np.array([7, value, 1, 2, 3, 4], "<i8").tobytes()
    with pytest.raises(InputError) as caught:
        in_protocol("torchrec", model(*MIXED), [pooled(ours)])
    assert str(caught.value) == (
        f"feature 'user': protocol 'torchrec' has ids of 32 bits, got {value}; --id-range says "
        "which to send"
    )


def test_a_priority_is_refused():
    ours = request()
    ours.priority = pb.PRIORITY_BACKGROUND
    with pytest.raises(InputError):
        in_protocol("torchrec", model(*MIXED), [pooled(ours)])
