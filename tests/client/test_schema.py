"""The answer to GetModel becomes plain values."""

import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.client.prediction import ServedInput, ServedModel, ServedOutput, served_model
from embershard.errors import InternalError


def message():
    described = pb.GetModelResponse(model="ranker", version=3, schema=0xFFFF_FFFF_FFFF_FFFF)
    described.inputs.add(name="age", scope=pb.SCOPE_REQUEST).dense.default = 0.0
    described.inputs.add(name="price", scope=pb.SCOPE_EXAMPLE).dense.SetInParent()
    sparse = described.inputs.add(name="tags", scope=pb.SCOPE_EXAMPLE).sparse
    sparse.weighted, sparse.max_ids, sparse.keep = True, 5, pb.KEEP_LAST
    sparse.known_ids, sparse.hashed = 90, True
    described.outputs.add(name="embedding", scope=pb.SCOPE_REQUEST, shape=[8])
    described.limits.max_examples = 4
    described.limits.max_ids = 50
    described.limits.max_message_bytes = 600
    return described


def test_a_description_is_read_whole():
    assert served_model(message()) == ServedModel(
        name="ranker",
        version=3,
        fingerprint=2**64 - 1,
        inputs=(
            ServedInput(name="age", kind="dense", scope="request", default=0.0),
            ServedInput(name="price", kind="dense", scope="example", default=None),
            ServedInput(
                name="tags",
                kind="sparse",
                scope="example",
                weighted=True,
                max_ids=5,
                known_ids=90,
                hashed=True,
            ),
        ),
        outputs=(ServedOutput(name="embedding", scope="request", shape=(8,)),),
        max_examples=4,
        max_ids=50,
        max_message_bytes=600,
    )


def test_dense_and_sparse_inputs_can_be_told_apart():
    model = served_model(message())
    assert [item.name for item in model.dense] == ["age", "price"]
    assert [item.name for item in model.sparse] == ["tags"]


def test_an_input_of_a_kind_from_the_future_is_refused():
    described = message()
    described.inputs.add(name="picture", scope=pb.SCOPE_EXAMPLE)
    with pytest.raises(InternalError, match=r"input 'picture': .* newer than this client\?"):
        served_model(described)


def test_a_scope_from_the_future_is_refused():
    described = message()
    described.inputs[0].scope = 9
    with pytest.raises(InternalError, match=r"'age': expected a scope in \[1, 2\], got 9"):
        served_model(described)
