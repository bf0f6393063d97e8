"""Requests that are refused: at least one for each status code and form.

C++ tests in predictor/batching, tensors and grpc have every rule.
"""

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


def without_price(message: pb.PredictRequest) -> None:
    del message.dense[1]


def sparse(name: str, **parts: bytes) -> Callable[[pb.PredictRequest], None]:
    """Replaces the lengths or values of a sparse input."""

    def spoil(message):
        item = next(feature for feature in message.sparse if feature.name == name)
        for part, data in parts.items():
            setattr(item, part, data)

    return spoil


def field(name: str, value: object) -> Callable[[pb.PredictRequest], None]:
    return lambda message: setattr(message, name, value)


def in_packed(name: str, value: object) -> Callable[[pb.PredictRequest], None]:
    return lambda message: setattr(message.packed, name, value)


def int32(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


def int64(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


NAMED = [
    Refused(
        "unknown-sparse-feature",
        lambda message: message.sparse.add(name="itm"),
        "feature 'itm': not a sparse input of the model, expected one of 'user', ...",
    ),
    Refused(
        "unknown-dense-feature",
        lambda message: message.dense.add(name="prize"),
        "feature 'prize': not a dense input of the model, expected one of 'age', ...",
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
        "half-a-value",
        sparse("item", values=int64(1, 2, 3)[:-1]),
        "feature 'item': values: expected a multiple of 8 bytes, got 23",
    ),
    Refused("missing-dense", without_price, "feature 'price': missing: expected 3 values, ..."),
    Refused(
        "unknown-id-under-reject",
        sparse("category", values=int64(1, 2, 6, 0)),
        "feature 'category': id 6 at example 1, position 1 is not in 0..5 (policy: reject)",
    ),
    Refused("no-examples", field("num_examples", 0), "num_examples: expected 1..4096, got 0..."),
    Refused(
        "another-model",
        field("model", "rankr"),
        "model 'rankr' is not served here, expected 'ranker' version 1",
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
    Refused("stale-schema", in_packed("schema", 7), "packed.schema: expected ...", STALE),
    Refused(
        "packed-values-too-many",
        in_packed("values", int64(*range(20))),
        "packed.values: expected 11 (the sum of the lengths), got 20",
    ),
    Refused(
        "packed-unknown-id-under-reject",
        in_packed("values", int64(1, 100, 101, 102, 1, 2, 77, 0, 1, 2, 3)),
        "feature 'category': id 77 at example 1, position 1 is not in 0..5 (policy: reject)",
    ),
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
