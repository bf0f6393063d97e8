"""TorchRec's protocol: bytes laid out by hand, scores and refusals those of our own protocol.

PredictionRequest   1 batch_size, 2 float_features, 3 id_list_features,
                    4 id_score_list_features, 5 embedding_features, 6 unary_features
FloatFeatures       1 num_features, 2 values
SparseFeatures      1 num_features, 2 lengths, 3 values, 4 weights
PredictionResponse  1 map: 1 key, 2 FloatVec with 1 packed floats
"""

import functools
from dataclasses import replace

import grpc
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cases import cases
from tests.serving.asking import Asked, flat, named, outputs_of
from tests.serving.counts import requests_by
from tests.serving.models import SCHEMA
from tests.serving.serve import serve

PREDICT = "/predictor.Predictor/Predict"
Code = grpc.StatusCode
DENSE = [item.name for item in SCHEMA.dense]
SPARSE = [item.name for item in SCHEMA.sparse if not item.weighted]
WEIGHTED = [item.name for item in SCHEMA.sparse if item.weighted]
SCOPES = {item.name: item.scope for item in (*SCHEMA.dense, *SCHEMA.sparse)}


def varint(value):
    value %= 1 << 64  # Protobuf writes a negative int32 as 64 bits.
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def floats(field, num_features, values):
    return text(field, number(1, num_features) + text(2, np.array(values, "<f4").tobytes()))


def lists(field, num_features, lengths, values, weights=()):
    return text(
        field,
        number(1, num_features)
        + text(2, np.array(lengths, "<i4").tobytes())
        + text(3, np.array(values, "<i4").tobytes())
        + (text(4, np.array(weights, "<f4").tobytes()) if len(weights) else b""),
    )


def read_varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(field, bytes) of a message whose fields are all length-delimited."""
    at, result = 0, []
    while at < len(data):
        tag, at = read_varint(data, at)
        assert tag & 7 == 2
        size, at = read_varint(data, at)
        result.append((tag >> 3, data[at : at + size]))
        at += size
    return result


def predictions(data):
    """Scores by key, read byte by byte."""
    scores = {}
    for field, entry in fields(data):
        assert field == 1
        (one, key), (two, vector) = fields(entry)
        assert (one, two) == (1, 2)
        ((data_field, packed),) = fields(vector)
        assert data_field == 1
        scores[key.decode()] = np.frombuffer(packed, "<f4")
    return scores


def per_example(request, name, values):
    """Repeats an input in request scope for every example, as TorchRec's clients send it."""
    return list(values) * request.num_examples if SCOPES[name] == "request" else list(values)


def encoded(request):
    """A request of ours in TorchRec's bytes, features in the manifest's order."""
    message = number(1, request.num_examples) + dense_of(request)
    for field, names in ((3, SPARSE), (4, WEIGHTED)):
        empty = [[]] * request.num_examples
        groups = [
            per_example(request, name, request.sparse[name]) if name in request.sparse else empty
            for name in names
        ]
        weights = [
            per_example(request, name, request.weights[name]) if name in request.weights else empty
            for name in names
            if field == 4
        ]
        every = flat(groups)
        message += lists(
            field, len(names), [len(ids) for ids in every], flat(every), flat(flat(weights))
        )
    return message


IDS = {"item": [100, 101, 159, -3, 7], "history": [120, 130, -3, 2**31 - 1]}
"""Some that the model knows; of others any will do."""


def request(examples=3, seed=None):
    """One that holds something of every input."""
    random = np.random.default_rng(examples if seed is None else seed)

    def drawn(name, most):
        count = 1 if SCOPES[name] == "request" else examples
        choices = IDS.get(name, range(6))
        sizes = random.integers(0, most + 1, count)
        return [[int(item) for item in random.choice(choices, size)] for size in sizes]

    sparse = {item.name: drawn(item.name, item.max_ids or 4) for item in SCHEMA.sparse}
    return Asked(
        num_examples=examples,
        dense={
            name: random.normal(size=1 if SCOPES[name] == "request" else examples).tolist()
            for name in DENSE
        },
        sparse=sparse,
        weights={
            name: [random.normal(size=len(feature)).tolist() for feature in sparse[name]]
            for name in WEIGHTED
        },
    )


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.address) as opened:
        yield opened


@pytest.fixture(scope="module")
def ask(channel):
    """Asks, and gives the answer's bytes."""
    method = channel.unary_unary(PREDICT)
    return functools.partial(method, timeout=60)


def refused(ask, message):
    with pytest.raises(grpc.RpcError) as caught:
        ask(message)
    return caught.value.code(), caught.value.details()


def test_the_bytes_are_those_of_its_field_numbers():
    """The helpers above, against bytes written out by hand."""
    message = number(1, 2) + floats(2, 1, [1.0, 2.0]) + lists(3, 1, [1, 0], [7])
    expected = (
        "0802"  # 1: batch_size 2
        "120c"
        "0801"
        "1208"
        "0000803f00000040"  # 2: one feature, values 1.0 and 2.0
        "1a12"
        "0801"
        "1208"
        "0100000000000000"
        "1a04"
        "07000000"  # 3: lengths 1 and 0, id 7
    )
    assert message.hex() == expected


def own_answer(channel, request):
    predict = channel.unary_unary("/embershard.v1.Predictor/Predict")
    return predict(named(request).SerializeToString(), timeout=60)


@pytest.mark.parametrize("examples", [1, 3, 40])
def test_scores_are_those_of_our_own_protocol(ask, channel, examples):
    own_request = request(examples)
    expected = outputs_of(own_answer(channel, own_request))
    scores = predictions(ask(encoded(own_request)))
    assert scores.keys() == {"default", "parts", "user_vector"}
    for key, name in (("default", "score"), ("parts", "parts"), ("user_vector", "user_vector")):
        np.testing.assert_array_equal(scores[key], expected[name].reshape(-1))


def test_groups_that_are_left_out_are_inputs_that_are_left_out(ask, channel):
    own_request = replace(request(2), sparse={}, weights={})
    message = number(1, 2) + dense_of(own_request)
    expected = outputs_of(own_answer(channel, own_request))["score"]
    np.testing.assert_array_equal(predictions(ask(message))["default"], expected)


def test_fields_that_it_does_not_know_are_nothing(ask):
    message = encoded(request())
    more = message + text(15, b"later") + floats(5, 0, []) + lists(6, 0, [], [])
    np.testing.assert_array_equal(
        predictions(ask(more))["default"], predictions(ask(message))["default"]
    )


@cases(
    "change",
    {
        "nan": {"dense": {"price": [1.0, float("nan"), 2.0]}},
        "unknown-id": {"sparse": {"category": [[0], [6], []]}},
        "negative-id": {"sparse": {"category": [[0], [-1], []]}},
    },
)
def test_requests_are_refused_in_the_same_words(ask, channel, change):
    own_request = request()
    own_request = replace(
        own_request,
        dense=own_request.dense | change.get("dense", {}),
        sparse=own_request.sparse | change.get("sparse", {}),
    )
    with pytest.raises(grpc.RpcError) as own:
        own_answer(channel, own_request)
    assert refused(ask, encoded(own_request)) == (own.value.code(), own.value.details())
    assert own.value.code() is Code.INVALID_ARGUMENT


def dense_of(request):
    columns = [per_example(request, name, request.dense[name]) for name in DENSE]
    return floats(2, len(DENSE), np.array(columns, "<f4").T.reshape(-1))


HEAD = number(1, 2) + floats(2, 4, [1, 2, 3, 4, 1, 6, 3, 8])
"""Two examples; age and hour are the same in both."""


@cases(
    ("message", "words"),
    {
        "negative": (number(1, -1), "batch_size: expected 0 or more, got -1"),
        "too-many": (number(1, 5000), "num_examples: expected 1..4096, got 5000"),
        "columns": (
            number(1, 2) + floats(2, 3, [1] * 6),
            "float_features.num_features: expected 4 (dense inputs), got 3",
        ),
        "values": (
            number(1, 2) + floats(2, 4, [1] * 7),
            "float_features.values: expected 8 (batch_size x dense inputs), got 7",
        ),
        "torn": (
            number(1, 2) + text(2, number(1, 4) + text(2, b"12345")),
            "float_features.values: expected a multiple of 4 bytes, got 5",
        ),
        "two-ages": (
            number(1, 2) + floats(2, 4, [1, 2, 3, 4, 5, 6, 3, 8]),
            "feature 'age': in request scope, expected the same in every example, "
            "got another at example 1",
        ),
        "features": (
            HEAD + lists(3, 6, [0] * 12, []),
            "id_list_features.num_features: expected 5 (sparse inputs without weights), got 6",
        ),
        "negative-features": (
            HEAD + lists(3, -5, [0] * 10, []),
            "id_list_features.num_features: expected 5 (sparse inputs without weights), got -5",
        ),
        "lengths": (
            HEAD + lists(3, 5, [0] * 9, []),
            "id_list_features.lengths: expected 10 (num_features x batch_size), got 9",
        ),
        "negative-length": (
            HEAD + lists(3, 5, [0, 0, 1, -1] + [0] * 6, [100]),
            "feature 'item': length at example 1 must not be negative, got -1",
        ),
        "too-few-ids": (
            HEAD + lists(3, 5, [0, 0, 1, 2] + [0] * 6, [100, 101]),
            "id_list_features.values: expected 3 (the sum of the lengths), got 2",
        ),
        "too-many-ids": (
            HEAD + lists(3, 5, [0, 0, 1, 0] + [0] * 6, [100, 101]),
            "id_list_features.values: expected 1 (the sum of the lengths), got 2",
        ),
        "two-users-by-length": (
            HEAD + lists(3, 5, [1, 2] + [0] * 8, [1, 1, 1]),
            "feature 'user': in request scope, expected the same in every example, "
            "got another at example 1",
        ),
        "two-users": (
            HEAD + lists(3, 5, [1, 1] + [0] * 8, [1, 2]),
            "feature 'user': in request scope, expected the same in every example, "
            "got another at example 1",
        ),
        "weights-of-none": (
            HEAD + lists(3, 5, [0] * 10, [], [1.0]),
            "id_list_features.weights: expected 0 (none, these inputs have no weights), got 1",
        ),
        "no-weights": (
            HEAD + lists(4, 2, [1, 0, 0, 0], [1]),
            "id_score_list_features.weights: expected 1 (one for each value), got 0",
        ),
        "two-weights": (
            HEAD + lists(4, 2, [0, 0, 1, 1], [1, 1], [0.5, 0.25]),
            "feature 'topics': in request scope, expected the same in every example, "
            "got another at example 1",
        ),
        "embeddings": (
            HEAD + floats(5, 1, [1, 2]),
            "embedding_features: expected none, got some; models here have no such inputs",
        ),
        "unary": (
            HEAD + lists(6, 1, [1, 0], [1]),
            "unary_features: expected none, got some; models here have no such inputs",
        ),
    },
)
def test_contradictory_requests_are_refused_and_disturb_nobody(ask, message, words):
    assert refused(ask, message) == (Code.INVALID_ARGUMENT, words)
    assert predictions(ask(encoded(request())))["default"].shape == (3,)


def test_lengths_beyond_31_bits_are_refused(ask):
    most = 2**31 - 1
    code, words = refused(ask, HEAD + lists(3, 5, [0, 0, most, most] + [0] * 6, [1]))
    assert code is Code.INVALID_ARGUMENT
    assert words.startswith("feature 'item': ")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_whatever_bytes_come_the_answer_is_scores_or_a_sentence(channel, data):
    message = bytearray(encoded(request()))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place] = data.draw(st.integers(0, 255))
    message = bytes(message[: data.draw(st.integers(0, len(message)))])
    call = channel.unary_unary(PREDICT).future(message, timeout=60)
    if call.code() is Code.OK:
        predictions(call.result())
    else:  # UNIMPLEMENTED is what gRPC itself says of what is no message.
        assert call.code() in {Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED}
        assert "failed:" not in call.details()


def test_it_is_counted_has_a_deadline_and_asks_for_the_token(repository, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    with (
        serve(repository, token_file=str(token)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        predict = channel.unary_unary(PREDICT)
        call = predict.future(encoded(request()), timeout=60)
        assert call.code() is Code.UNAUTHENTICATED
        header = (("authorization", "Bearer 0123456789abcdef"),)
        predict(encoded(request()), metadata=header, timeout=60)
        bad = predict.future(number(1, -1), metadata=header, timeout=60)
        assert bad.code() is Code.INVALID_ARGUMENT
        late = predict.future(encoded(request()), metadata=header, timeout=0)
        assert late.code() is Code.DEADLINE_EXCEEDED
        metrics, codes = server.metrics(), requests_by(server, "code")
    assert (codes["OK",], codes["INVALID_ARGUMENT",]) == (1, 1)
    assert metrics.total("embershard_examples") == 3
    assert metrics.total("embershard_unauthenticated_calls") == 1
