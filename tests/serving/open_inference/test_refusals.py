"""Requests are refused in the words of our own protocol."""

import re
from dataclasses import replace

import grpc
import numpy as np
import pytest

from tests.cases import cases
from tests.serving.open_inference.tensors import arrays_of, by_name, in_arrays, infer_request
from tests.serving.refused import CASES, GOOD, Code, message_of

# Only messages of our own protocol have a schema's fingerprint and bytes that are no whole values.
OURS_ALONE = re.compile(r"half|stale-schema")
ARRAYS = {
    "packed.lengths": "tensor 'LENGTHS'",
    "packed.values": "tensor 'VALUES'",
    "packed.weights": "tensor 'WEIGHTS'",
    "packed.request_dense": "tensor 'REQUEST_DENSE'",
    "packed.example_dense": "tensor 'DENSE'",
}
# Our own protocol names an input and its kind; this one names tensors.
TENSORS = {
    "unknown-dense-feature": "tensor 'prize': not an input of the model, expected one of 'age', ..."
}
SHARED = [case for case in CASES if not OURS_ALONE.search(case.id)]


def message(refused, *, is_packed, fingerprint):
    from embershard._proto import predictor_pb2 as pb

    spoilt = pb.PredictRequest.FromString(
        message_of(refused, is_packed=is_packed, fingerprint=fingerprint)
    )
    tensors = list(in_arrays(spoilt) if is_packed else by_name(spoilt))
    request = infer_request(tensors, spoilt.model or "ranker")
    request.parameters["num_examples"].int64_param = spoilt.num_examples
    for name in spoilt.outputs:
        request.outputs.add(name=name)
    return request


@pytest.mark.parametrize(("refused", "is_packed"), SHARED)
def test_is_refused_in_the_same_words(infer, fingerprint, refused, is_packed):
    with pytest.raises(grpc.RpcError) as caught:
        infer(message(refused, is_packed=is_packed, fingerprint=fingerprint))
    words = caught.value.details()
    for ours, theirs in ARRAYS.items():
        words = words.replace(theirs, ours)
    assert caught.value.code() is refused.code
    expected = replace(refused, words=TENSORS.get(refused.name, refused.words))
    assert expected.matches(words), words


def good_message():
    return infer_request(list(arrays_of(GOOD, is_packed=False).items()))


def first(message):
    return message.inputs[0]  # age


def tensor(message, name):
    return next(item for item in message.inputs if item.name == name)


@cases(
    ("spoil", "code", "words"),
    {
        "raw-contents-missing-one": (
            lambda message: message.raw_input_contents.pop(),
            Code.INVALID_ARGUMENT,
            "raw_input_contents: expected 11, one for each input, got 10",
        ),
        "raw-and-typed": (
            lambda message: first(message).contents.fp32_contents.append(1),
            Code.INVALID_ARGUMENT,
            "tensor 'age': expected contents or raw_input_contents, got both",
        ),
        "shared-memory": (
            lambda message: (
                first(message)
                .parameters["shared_memory_region"]
                .__setattr__("string_param", "mine")
            ),
            Code.INVALID_ARGUMENT,
            "tensor 'age': parameter 'shared_memory_region' is not served here, expected none",
        ),
        "classification": (
            lambda message: (
                message.outputs.add(name="score")
                .parameters["classification"]
                .__setattr__("int64_param", 3)
            ),
            Code.INVALID_ARGUMENT,
            "output 'score': parameter 'classification' is not served here, expected none",
        ),
        "another-version": (
            lambda message: setattr(message, "model_version", "2"),
            Code.NOT_FOUND,
            "version 2 is not served here, expected 'ranker' version 1",
        ),
        "a-label": (
            lambda message: setattr(message, "model_version", "canary"),
            Code.NOT_FOUND,
            "label 'canary' is not defined here, expected none or 'ranker' version 1",
        ),
    },
)
def test_is_refused_in_words(infer, spoil, code, words):
    message = good_message()
    infer(message)
    spoil(message)
    with pytest.raises(grpc.RpcError) as caught:
        infer(message)
    assert (caught.value.code(), caught.value.details()) == (code, words)


def typed(message):
    """The same with contents in place of raw ones."""
    fields = {"FP32": "fp32_contents", "INT32": "int_contents", "INT64": "int64_contents"}
    types = {"FP32": "<f4", "INT32": "<i4", "INT64": "<i8"}
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        values = np.frombuffer(raw, types[tensor.datatype]).tolist()
        getattr(tensor.contents, fields[tensor.datatype]).extend(values)
    del message.raw_input_contents[:]
    return message


def test_typed_contents_give_the_same(infer, our_outputs):
    answer = infer(typed(good_message()))
    expected = our_outputs(GOOD)
    assert list(answer.raw_output_contents) == [values.tobytes() for values in expected.values()]


def test_typed_contents_of_another_type_are_refused(infer):
    message = typed(good_message())
    first(message).contents.int64_contents.append(1)
    with pytest.raises(grpc.RpcError) as caught:
        infer(message)
    assert caught.value.details() == (
        "tensor 'age': expected contents in fp32_contents alone for datatype 'FP32'"
    )
