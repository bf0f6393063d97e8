"""Requests for the small ranker, as plain values, as messages, and as hypothesis draws them."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import xxhash
from hypothesis import strategies as st

from embershard._proto import predictor_pb2 as pb
from embershard.package import SampleRequest, Schema
from tests.serving.models import CATEGORIES, ITEMS, SCHEMA, TAGS, USERS

WEIGHTED = [item.name for item in SCHEMA.sparse if item.weighted]


@dataclass(frozen=True)
class Asked:
    """One request. Inputs that are not there were left out."""

    num_examples: int
    dense: dict[str, list[float]] = field(default_factory=dict)
    sparse: dict[str, list[list[Any]]] = field(default_factory=dict)
    weights: dict[str, list[list[float]]] = field(default_factory=dict)
    schema: Schema = SCHEMA

    def examples(self, first: int, count: int) -> "Asked":
        """Some of the examples, in a request of their own."""

        def cut(values, scope):
            return values if scope == "request" else values[first : first + count]

        scopes = {item.name: item.scope for item in (*self.schema.dense, *self.schema.sparse)}
        return replace(
            self,
            num_examples=count,
            dense={name: cut(values, scopes[name]) for name, values in self.dense.items()},
            sparse={name: cut(lists, scopes[name]) for name, lists in self.sparse.items()},
            weights={name: cut(lists, scopes[name]) for name, lists in self.weights.items()},
        )


def id_bits(value: Any) -> int:
    """An id as the wire carries it: a signed integer of 64 bits."""
    bits = xxhash.xxh3_64_intdigest(value.encode()) if isinstance(value, str) else value
    return (bits + 2**63) % 2**64 - 2**63


def flat(lists):
    return [value for values in lists for value in values]


def named(request: Asked) -> pb.PredictRequest:
    """The named form."""
    message = pb.PredictRequest(num_examples=request.num_examples)
    for name, values in request.dense.items():
        message.dense.add(name=name, values=np.array(values, "<f4").tobytes())
    for name, lists in request.sparse.items():
        message.sparse.add(
            name=name,
            lengths=np.array([len(values) for values in lists], "<i4").tobytes(),
            values=np.array([id_bits(value) for value in flat(lists)], "<i8").tobytes(),
            weights=np.array(flat(request.weights.get(name, [])), "<f4").tobytes(),
        )
    return message


def packed(request: Asked, fingerprint: int) -> pb.PredictRequest:
    """The packed form, laid out by hand."""
    message = pb.PredictRequest(num_examples=request.num_examples)
    columns = {"request": [], "example": []}
    for item in SCHEMA.dense:
        count = 1 if item.scope == "request" else request.num_examples
        column = request.dense.get(item.name, [item.default] * count)
        columns[item.scope].append(column)
    lengths, values, weights = [], [], []
    for item in SCHEMA.sparse:
        count = 1 if item.scope == "request" else request.num_examples
        lists = request.sparse.get(item.name, [[]] * count)
        lengths += [len(ids) for ids in lists]
        values += [id_bits(value) for value in flat(lists)]
        weights += flat(request.weights.get(item.name, []))
    message.packed.schema = fingerprint
    message.packed.request_dense = np.array(columns["request"], "<f4").tobytes()
    message.packed.example_dense = np.array(columns["example"], "<f4").T.tobytes()
    message.packed.lengths = np.array(lengths, "<i4").tobytes()
    message.packed.values = np.array(values, "<i8").tobytes()
    message.packed.weights = np.array(weights, "<f4").tobytes()
    return message


def packed_sample(sample: SampleRequest, fingerprint: int) -> pb.PredictRequest:
    """A request that is laid out already."""
    return pb.PredictRequest(
        num_examples=sample.num_examples,
        packed=pb.Packed(
            schema=fingerprint,
            request_dense=sample.request_dense.astype("<f4").tobytes(),
            example_dense=sample.example_dense.astype("<f4").tobytes(),
            lengths=sample.lengths.astype("<i4").tobytes(),
            values=sample.values.astype("<i8").tobytes(),
            weights=sample.weights.astype("<f4").tobytes(),
        ),
    )


def outputs_of(answer: object) -> dict[str, np.ndarray]:
    """Outputs by name, of a serialized answer; an error is raised."""
    if isinstance(answer, Exception):
        raise answer
    message = pb.PredictResponse.FromString(answer)
    return {
        output.name: np.frombuffer(output.values, "<f4").reshape(tuple(output.shape))
        for output in message.outputs
    }


FLOATS = st.floats(-4, 4, width=32)
ANY_ID = st.integers(-(2**63), 2**64 - 1)
IDS = {  # Strings or integers, never both in one input.
    "user": [st.sampled_from([*USERS, "nobody", "u40"])],
    "item": [st.sampled_from(ITEMS) | ANY_ID],
    "history": [st.sampled_from(ITEMS) | ANY_ID],
    "query": [st.text(max_size=3), ANY_ID],
    "category": [st.integers(0, CATEGORIES - 1)],
    "tags": [st.integers(-2, TAGS + 1)],
    "topics": [ANY_ID],
}
MOST = {"category": 3}


@st.composite
def requests(draw, *, min_examples: int = 1, max_examples: int = 6):
    """Requests that the ranker takes: empty bags, inputs left out, unknown ids, long lists."""
    count = draw(st.integers(min_examples, max_examples))
    dense, sparse, weights = {}, {}, {}
    for item in SCHEMA.dense:
        size = 1 if item.scope == "request" else count
        if item.default is None or draw(st.booleans()):
            dense[item.name] = draw(st.lists(FLOATS, min_size=size, max_size=size))
    for item in SCHEMA.sparse:
        if draw(st.integers(0, 5)) == 0:
            continue
        size = 1 if item.scope == "request" else count
        kind = draw(st.sampled_from(IDS[item.name]))
        ids = st.lists(kind, max_size=MOST.get(item.name, 8))
        sparse[item.name] = draw(st.lists(ids, min_size=size, max_size=size))
        if item.weighted:
            weights[item.name] = [
                draw(st.lists(FLOATS, min_size=len(feature), max_size=len(feature)))
                for feature in sparse[item.name]
            ]
    return Asked(num_examples=count, dense=dense, sparse=sparse, weights=weights)


def random_request(examples: int, seed: int = 0) -> Asked:
    """A large request, made quickly."""
    random = np.random.default_rng(seed)

    def lists(name, count, most, choices):
        sizes = random.integers(0, most + 1, count)
        return [[choices[k] for k in random.integers(0, len(choices), size)] for size in sizes]

    sparse = {
        "user": [[USERS[random.integers(len(USERS))]]],
        "item": lists("item", examples, 1, ITEMS),
        "history": lists("history", 1, 9, ITEMS),
        "query": lists("query", 1, 4, ["red", "shoes", "size 9"]),
        "category": lists("category", examples, 3, range(CATEGORIES)),
        "tags": lists("tags", examples, 4, range(TAGS + 1)),
        "topics": lists("topics", 1, 6, range(1000)),
    }
    return Asked(
        num_examples=examples,
        dense={
            item.name: random.normal(size=1 if item.scope == "request" else examples).tolist()
            for item in SCHEMA.dense
        },
        sparse=sparse,
        weights={
            name: [random.normal(size=len(feature)).tolist() for feature in sparse[name]]
            for name in WEIGHTED
        },
    )
