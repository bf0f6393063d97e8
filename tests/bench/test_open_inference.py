"""Requests in the Open Inference Protocol, read with Triton's own messages."""

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from embershard._proto import predictor_pb2 as pb
from embershard.bench import LoadOptions
from embershard.bench.load_options import PooledRequest
from embershard.bench.protocols import in_protocol
from embershard.client import ServedInput, ServedModel
from embershard.errors import InputError
from tests.cases import cases

INPUTS = (
    ServedInput(name="age", kind="dense", scope="request"),
    ServedInput(name="price", kind="dense", scope="example"),
    ServedInput(name="likes", kind="dense", scope="example"),
    ServedInput(name="user", kind="sparse", scope="request"),
    ServedInput(name="tags", kind="sparse", scope="example", weighted=True),
)


def model(*inputs: ServedInput) -> ServedModel:
    return ServedModel(
        name="ranker",
        version=300,
        fingerprint=7,
        inputs=inputs,
        outputs=(),
        max_examples=10,
        max_ids=100,
        max_message_bytes=1 << 20,
    )


def arrays(message: service_pb2.ModelInferRequest) -> dict[str, tuple[str, list[int], bytes]]:
    return {
        tensor.name: (tensor.datatype, list(tensor.shape), raw)
        for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True)
    }


def test_a_request_says_the_same():
    dense, request_dense = np.arange(6, dtype="<f4"), np.array([30], "<f4")
    lengths, values = np.array([1, 2, 0, 1], "<i4"), np.array([1 << 40, 1, 2, 3], "<i8")
    weights = np.array([0.5, 1, 2], "<f4")
    ours = pb.PredictRequest(
        num_examples=3,
        priority=pb.PRIORITY_BACKGROUND,
        packed=pb.Packed(
            schema=7,
            example_dense=dense.tobytes(),
            request_dense=request_dense.tobytes(),
            lengths=lengths.tobytes(),
            values=values.tobytes(),
            weights=weights.tobytes(),
        ),
    )
    pooled = PooledRequest(ours.SerializeToString(), examples=3, ids=4)
    (converted,) = in_protocol("oip", model(*INPUTS), [pooled])
    assert (converted.examples, converted.ids) == (3, 4)
    message = service_pb2.ModelInferRequest.FromString(converted.message)
    assert (message.model_name, message.model_version) == ("ranker", "")
    assert {key: value.int64_param for key, value in message.parameters.items()} == {
        "num_examples": 3,
        "priority": 2,
    }
    assert arrays(message) == {
        "DENSE": ("FP32", [3, 2], dense.tobytes()),
        "REQUEST_DENSE": ("FP32", [1], request_dense.tobytes()),
        "LENGTHS": ("INT32", [4], lengths.tobytes()),
        "VALUES": ("INT64", [4], values.tobytes()),
        "WEIGHTS": ("FP32", [3], weights.tobytes()),
    }


@cases(
    ("named", "version"),
    {
        "version": ({"version": 12}, "12"),
        "label": ({"label": "canary"}, "canary"),
    },
)
def test_a_version_and_a_label_are_the_models_version(named, version):
    ours = pb.PredictRequest(num_examples=1, **named)
    pooled = PooledRequest(ours.SerializeToString(), examples=1, ids=0)
    (converted,) = in_protocol("oip", model(), [pooled])
    message = service_pb2.ModelInferRequest.FromString(converted.message)
    assert message.model_version == version


def test_what_a_model_does_not_have_is_not_sent():
    ours = pb.PredictRequest(num_examples=1, packed=pb.Packed(lengths=bytes(4)))
    pooled = PooledRequest(ours.SerializeToString(), examples=1, ids=0)
    (converted,) = in_protocol("oip", model(INPUTS[3]), [pooled])
    message = service_pb2.ModelInferRequest.FromString(converted.message)
    assert list(arrays(message)) == ["LENGTHS", "VALUES"]


@cases(
    ("options", "words"),
    {
        "name": (
            {"protocol": "http"},
            "protocol: expected one of embershard, oip, torchrec, got 'http'",
        ),
        "streams": (
            {"protocol": "oip", "streams": 1},
            "streams: expected 0 with protocol 'oip', got 1",
        ),
        "streams-of-torchrec": (
            {"protocol": "torchrec", "streams": 1},
            "streams: expected 0 with protocol 'torchrec', got 1",
        ),
    },
)
def test_options_that_contradict_each_other_are_refused(options, words):
    with pytest.raises(InputError) as caught:
        LoadOptions(in_flight=1, **options)
    assert str(caught.value) == words


def test_shapes_of_tensors_have_a_leading_one_if_it_is_wanted():
    ours = pb.PredictRequest(
        num_examples=2, packed=pb.Packed(example_dense=bytes(16), lengths=bytes(8))
    )
    pooled = PooledRequest(ours.SerializeToString(), examples=2, ids=0)
    price, likes, user = INPUTS[1], INPUTS[2], INPUTS[3]
    (converted,) = in_protocol("oip", model(price, likes, user), [pooled], first_dimension=True)
    message = service_pb2.ModelInferRequest.FromString(converted.message)
    assert {name: shape for name, (_, shape, _) in arrays(message).items()} == {
        "DENSE": [1, 2, 2],
        "LENGTHS": [1, 2],
        "VALUES": [1, 0],
    }
