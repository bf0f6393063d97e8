"""Requests that must be refused, each with the words it is refused with."""

from collections.abc import Callable
from dataclasses import dataclass

import grpc
import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from tests.serving.asking import Asked, named, packed

Code = grpc.StatusCode
INVALID, NOT_FOUND, STALE = Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.FAILED_PRECONDITION

GOOD = Asked(
    num_examples=3,
    dense={"age": [0.5], "price": [1.0, 2.0, 3.0]},
    sparse={
        "user": [["u1"]],
        "item": [[100], [101, 102], []],
        "category": [[1], [2, 3], [0]],
        "tags": [[1], [], [2, 3]],
    },
    weights={"tags": [[0.5], [], [1.0, -1.0]]},
)

NO_EXAMPLES = (
    "num_examples: expected 1..4096, got 0; without examples, name only outputs in request scope: "
    "'user_vector'"
)


@dataclass(frozen=True)
class Refused:
    name: str
    spoil: Callable[[pb.PredictRequest], object]
    """Turns the message of GOOD into one that is refused."""

    words: str
    """The whole message of the refusal, or its start where it ends in "..."."""

    code: Code = INVALID

    def matches(self, message: str) -> bool:
        if self.words.endswith("..."):
            return message.startswith(self.words[:-3])
        return message == self.words


def int32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def int64(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


def float32(*values: float) -> bytes:
    return np.array(values, "<f4").tobytes()


def dense(name: str, values: bytes) -> Callable[[pb.PredictRequest], None]:
    """Gives a dense input other values."""

    def spoil(message):
        next(feature for feature in message.dense if feature.name == name).values = values

    return spoil


def without(name: str) -> Callable[[pb.PredictRequest], None]:
    def spoil(message):
        kept = [feature for feature in message.dense if feature.name != name]
        del message.dense[:]
        message.dense.extend(kept)

    return spoil


def sparse(name: str, **parts: bytes) -> Callable[[pb.PredictRequest], None]:
    """Gives a sparse input other lengths, values or weights."""

    def spoil(message):
        results = [feature for feature in message.sparse if feature.name == name]
        item = results[0] if results else message.sparse.add(name=name)
        for part, data in parts.items():
            setattr(item, part, data)

    return spoil


def field(name: str, value: object) -> Callable[[pb.PredictRequest], None]:
    return lambda message: setattr(message, name, value)


def in_packed(name: str, value: object) -> Callable[[pb.PredictRequest], None]:
    return lambda message: setattr(message.packed, name, value)


LARGEST = 2**31 - 1

NAMED = [
    Refused(
        "unknown-sparse-feature",
        lambda message: message.sparse.add(name="itm"),
        "feature 'itm': not a sparse input of the model, expected one of 'user', 'item', "
        "'history', 'query', 'category', 'tags', 'topics'",
    ),
    Refused(
        "unknown-dense-feature",
        lambda message: message.dense.add(name="prize"),
        "feature 'prize': not a dense input of the model, expected one of 'age', 'price', "
        "'hour', 'likes'",
    ),
    Refused(
        "sparse-feature-sent-as-dense",
        lambda message: message.dense.add(name="item"),
        "feature 'item': not a dense input of the model, expected one of 'age', ...",
    ),
    Refused(
        "feature-given-twice",
        lambda message: message.sparse.add(name="item"),
        "feature 'item': given twice, expected once",
    ),
    Refused(
        "lengths-that-do-not-sum-to-values",
        sparse("item", lengths=int32(1, 2, 1)),
        "feature 'item': lengths sum to 4, but there are 3 values",
    ),
    Refused(
        "values-without-lengths",
        sparse("item", lengths=b""),
        "feature 'item': expected 3 lengths, got 0",
    ),
    Refused(
        "too-few-lengths",
        sparse("item", lengths=int32(1, 2)),
        "feature 'item': expected 3 lengths, got 2",
    ),
    Refused(
        "a-list-for-each-example-in-request-scope",
        sparse("user", lengths=int32(1, 0, 0)),
        "feature 'user': expected 1 lengths, got 3",
    ),
    Refused(
        "negative-length",
        sparse("item", lengths=int32(4, -1, 0)),
        "feature 'item': length at example 1 must not be negative, got -1",
    ),
    Refused(
        "negative-length-in-request-scope",
        sparse("user", lengths=int32(-2)),
        "feature 'user': length must not be negative, got -2",
    ),
    Refused(
        "sums-past-two-to-the-31",
        sparse("item", lengths=int32(LARGEST, LARGEST, LARGEST)),
        "feature 'item': lengths sum to 6442450941, expected at most 2147483647",
    ),
    Refused(
        "sums-that-wrap-to-the-right-one",
        sparse("item", lengths=int32(LARGEST, LARGEST, 5)),  # 3 modulo 2**32.
        "feature 'item': lengths sum to 4294967299, expected at most 2147483647",
    ),
    Refused(
        "half-a-value",
        sparse("item", values=int64(1, 2, 3)[:-1]),
        "feature 'item': values: expected a multiple of 8 bytes, got 23",
    ),
    Refused(
        "half-a-length",
        sparse("item", lengths=int32(1, 2, 0) + b"\0\0"),
        "feature 'item': lengths: expected a multiple of 4 bytes, got 14",
    ),
    Refused(
        "half-a-weight",
        sparse("tags", weights=b"\0"),
        "feature 'tags': weights: expected a multiple of 4 bytes, got 1",
    ),
    Refused(
        "half-a-dense-value",
        dense("price", b"\0" * 13),
        "feature 'price': values: expected a multiple of 4 bytes, got 13",
    ),
    Refused(
        "missing-dense",
        without("price"),
        "feature 'price': missing: expected 3 values, got none (it has no default)",
    ),
    Refused(
        "missing-dense-in-request-scope",
        without("age"),
        "feature 'age': missing: expected 1 values, got none (it has no default)",
    ),
    Refused(
        "too-few-dense-values",
        dense("price", float32(1, 2)),
        "feature 'price': expected 3 values, got 2",
    ),
    Refused(
        "a-value-for-each-example-in-request-scope",
        dense("age", float32(1, 1, 1)),
        "feature 'age': expected 1 values, got 3",
    ),
    Refused(
        "nan",
        dense("price", float32(1, float("nan"), 3)),
        "feature 'price': value at example 1 must be finite, got nan",
    ),
    Refused(
        "infinity-in-request-scope",
        dense("age", float32(float("-inf"))),
        "feature 'age': value must be finite, got -inf",
    ),
    Refused(
        "unknown-id-under-reject",
        sparse("category", values=int64(1, 2, 6, 0)),
        "feature 'category': id 6 at example 1, position 1 is not in 0..5 (policy: reject)",
    ),
    Refused(
        "negative-id-under-reject",
        sparse("category", values=int64(1, 2, 3, -1)),
        "feature 'category': id -1 at example 2, position 0 is not in 0..5 (policy: reject)",
    ),
    Refused(
        "a-list-over-max-ids-under-reject",
        sparse("category", lengths=int32(0, 4, 0)),
        "feature 'category': list at example 1 has 4 ids, expected at most 3",
    ),
    Refused("no-examples", field("num_examples", 0), NO_EXAMPLES),
    Refused(
        "too-many-examples", field("num_examples", 4097), "num_examples: expected 1..4096, got 4097"
    ),
    Refused(
        "the-largest-number-of-examples",
        field("num_examples", 2**32 - 1),
        "num_examples: expected 1..4096, got 4294967295",
    ),
    Refused(
        "weights-on-an-unweighted-feature",
        sparse("item", weights=float32(1, 1, 1)),
        "feature 'item': is not weighted: expected no weights, got 3",
    ),
    Refused(
        "too-few-weights",
        sparse("tags", weights=float32(1, 1)),
        "feature 'tags': expected 3 weights, one for each value, got 2",
    ),
    Refused(
        "a-weight-that-is-not-finite",
        sparse("tags", weights=float32(1, 1, float("inf"))),
        "feature 'tags': weight at example 2, position 1 must be finite, got inf",
    ),
    Refused(
        "too-many-ids",
        sparse("query", lengths=int32(1 << 20), values=bytes(8 << 20)),
        "request: expected at most 1048576 ids, got ...",
    ),
    Refused(
        "packed-and-named",
        lambda message: message.packed.SetInParent(),
        "request: expected packed or named inputs, got both",
    ),
    Refused(
        "another-model",
        field("model", "rankr"),
        "model 'rankr' is not served here, expected 'ranker' version 1",
        NOT_FOUND,
    ),
    Refused(
        "another-version",
        field("version", 2),
        "version 2 is not served here, expected 'ranker' version 1",
        NOT_FOUND,
    ),
    Refused(
        "a-label",
        field("label", "canary"),
        "label 'canary' is not defined here, expected none or 'ranker' version 1",
        NOT_FOUND,
    ),
    Refused(
        "unknown-output",
        lambda message: message.outputs.append("scor"),
        "output 'scor' is not there, expected one of ...",
        NOT_FOUND,
    ),
]

PACKED = [
    Refused(
        "stale-schema",
        in_packed("schema", 7),
        "packed.schema: expected ...",
        STALE,
    ),
    Refused(
        "packed-lengths-missing-one",
        in_packed("lengths", int32(1, 1, 2)),
        "packed.lengths: expected 13 (one for each list of each input), got 3",
    ),
    Refused(
        "packed-values-too-many",
        in_packed("values", int64(*range(20))),
        "packed.values: expected 11 (the sum of the lengths), got 20",
    ),
    Refused(
        "packed-values-none",
        in_packed("values", b""),
        "packed.values: expected 11 (the sum of the lengths), got 0",
    ),
    Refused(
        "packed-weights-none",
        in_packed("weights", b""),
        "packed.weights: expected 3 (one for each value of the weighted inputs), got 0",
    ),
    Refused(
        "packed-negative-length",
        in_packed("lengths", int32(1, 5, -2, 0, *[0] * 9)),
        "feature 'item': length at example 1 must not be negative, got -2",
    ),
    Refused(
        "packed-sums-past-two-to-the-31",
        in_packed("lengths", int32(1, LARGEST, LARGEST, LARGEST, *[0] * 9)),
        "feature 'item': lengths sum to 6442450941, expected at most 2147483647",
    ),
    Refused(
        "packed-features-that-only-together-pass-two-to-the-31",
        in_packed("lengths", int32(LARGEST, LARGEST, *[0] * 11)),
        "packed.values: expected 4294967294 (the sum of the lengths), got 11",
    ),
    Refused(
        "packed-half-a-value",
        in_packed("values", b"\0" * 87),
        "packed.values: expected a multiple of 8 bytes, got 87",
    ),
    Refused(
        "packed-missing-request-dense",
        in_packed("request_dense", float32(1)),
        "packed.request_dense: expected 2 (dense inputs in request scope), got 1",
    ),
    Refused(
        "packed-missing-example-dense",
        in_packed("example_dense", float32(1, 2, 3)),
        "packed.example_dense: expected 6 (num_examples x dense inputs in example scope), got 3",
    ),
    Refused(
        "packed-nan",
        in_packed("example_dense", float32(1, 2, 3, 4, 5, float("nan"))),
        "feature 'likes': value at example 2 must be finite, got nan",
    ),
    Refused(
        "packed-unknown-id-under-reject",
        in_packed("values", int64(1, 100, 101, 102, 1, 2, 77, 0, 1, 2, 3)),
        "feature 'category': id 77 at example 1, position 1 is not in 0..5 (policy: reject)",
    ),
    Refused(
        "packed-num-examples-of-others",
        field("num_examples", 4000),
        "packed.example_dense: expected 8000 (num_examples x dense inputs in example scope), got 6",
    ),
    Refused("packed-no-examples", field("num_examples", 0), NO_EXAMPLES),
]


CASES = [  # Each with whether its request is packed.
    pytest.param(refused, is_packed, id=refused.name)
    for is_packed, refusals in ((False, NAMED), (True, PACKED))
    for refused in refusals
]


def message_of(refused: Refused, *, is_packed: bool, fingerprint: int) -> bytes:
    message = packed(GOOD, fingerprint) if is_packed else named(GOOD)
    refused.spoil(message)
    return message.SerializeToString()
