"""A server's answers to GetModel and Predict as plain values."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from embershard._proto import predictor_pb2 as pb
from embershard.errors import InternalError, NotFoundError

Scope = Literal["example", "request"]

SCOPES: dict[int, Scope] = {pb.SCOPE_EXAMPLE: "example", pb.SCOPE_REQUEST: "request"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedInput:
    """One input of a served model."""

    name: str

    kind: Literal["dense", "sparse"]

    scope: Scope
    """One value per example, or one for the whole request."""

    default: float | None = None
    """Dense: value if a request leaves the input out. None: the input is required."""

    weighted: bool = False
    """Sparse: every id needs a weight."""

    max_ids: int = 0
    """Sparse: number of ids of a list that are used. 0: no limit."""

    known_ids: int = 0
    """Sparse: ids 0 .. known_ids - 1 are known. 0: the ids are in a vocabulary, or the server does
    not report them."""

    hashed: bool = False
    """Sparse: any id is known and is hashed to one of ``known_ids`` buckets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOutput:
    """One output of a served model: float32, shape ``(num_examples or 1, *shape)``."""

    name: str
    scope: Scope
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model as its server describes it."""

    name: str
    version: int

    fingerprint: int
    """XXH3-64 of inputs and outputs, sent with every packed request."""

    inputs: tuple[ServedInput, ...]
    """Dense inputs, then sparse inputs, in the order of the packed form."""

    outputs: tuple[ServedOutput, ...]

    max_examples: int
    """Limit of examples per request."""

    max_ids: int
    """Limit of ids per request, over all sparse inputs."""

    max_message_bytes: int

    @cached_property
    def dense(self) -> tuple[ServedInput, ...]:
        return tuple(item for item in self.inputs if item.kind == "dense")

    @cached_property
    def sparse(self) -> tuple[ServedInput, ...]:
        return tuple(item for item in self.inputs if item.kind == "sparse")


def served_model(message: pb.GetModelResponse) -> ServedModel:
    """Raises InternalError if a scope or kind is unknown to this client."""
    return ServedModel(
        name=message.model,
        version=message.version,
        fingerprint=message.schema,
        inputs=tuple(_input(item) for item in message.inputs),
        outputs=tuple(
            ServedOutput(
                name=item.name, scope=_scope(item.name, item.scope), shape=tuple(item.shape)
            )
            for item in message.outputs
        ),
        max_examples=message.limits.max_examples,
        max_ids=message.limits.max_ids,
        max_message_bytes=message.limits.max_message_bytes,
    )


def _input(message: pb.Input) -> ServedInput:
    scope = _scope(message.name, message.scope)
    if message.WhichOneof("kind") == "dense":
        default = message.dense.default if message.dense.HasField("default") else None
        return ServedInput(name=message.name, kind="dense", scope=scope, default=default)
    if message.WhichOneof("kind") == "sparse":
        return ServedInput(
            name=message.name,
            kind="sparse",
            scope=scope,
            weighted=message.sparse.weighted,
            max_ids=message.sparse.max_ids,
            known_ids=message.sparse.known_ids,
            hashed=message.sparse.hashed,
        )
    raise InternalError(
        f"input {message.name!r}: expected a dense or a sparse input, got neither; "
        "is the server newer than this client?"
    )


def _scope(name: str, value: int) -> Scope:
    if value not in SCOPES:
        raise InternalError(f"{name!r}: expected a scope in {sorted(SCOPES)}, got {value}")
    return SCOPES[value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Times of a request in the server, in microseconds."""

    queue_us: int
    """Time until its batch started."""

    lookup_us: int
    """Time of the whole batch's lookups."""

    dense_us: int
    """Time of the dense program for the whole batch."""

    total_us: int
    """From the arrival of the request to the answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prediction(Mapping[str, npt.NDArray[np.float32]]):
    """Outputs by name: float32, shape ``(num_examples, ...)``, or ``(1, ...)`` in request scope."""

    model: str
    version: int
    outputs: Mapping[str, npt.NDArray[np.float32]]
    timing: Timing

    unknown_ids: Mapping[str, int]
    """Number of ids that the model does not know, by feature. Features without any are left out."""

    request_id: str = ""

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        """
        Raises:
            NotFoundError: there is no such output. It is also a KeyError.
        """
        if name not in self.outputs:
            known = ", ".join(map(repr, self.outputs)) or "none"
            raise _NoSuchOutputError(f"output {name!r}: expected an output of the answer, {known}")
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


class _NoSuchOutputError(NotFoundError, KeyError):
    """A KeyError, as for any mapping, that is also an error of this library."""

    __str__ = Exception.__str__  # KeyError would add quotes.


def prediction(message: pb.PredictResponse) -> Prediction:
    """Raises InternalError if the shape of an output is invalid, or does not match its bytes."""
    timing = message.timing
    return Prediction(
        model=message.model,
        version=message.version,
        outputs={item.name: _values(item) for item in message.outputs},
        timing=Timing(
            queue_us=timing.queue_us,
            lookup_us=timing.lookup_us,
            dense_us=timing.dense_us,
            total_us=timing.total_us,
        ),
        unknown_ids={item.feature: item.count for item in message.unknown_ids},
        request_id=message.request_id,
    )


def _values(output: pb.Output) -> npt.NDArray[np.float32]:
    shape = tuple(output.shape)
    if any(size < 0 for size in shape):
        raise InternalError(
            f"output {output.name!r}: expected sizes of at least 0, got shape {shape}"
        )
    expected = 4 * math.prod(shape)
    if len(output.values) != expected:
        raise InternalError(
            f"output {output.name!r}: expected {expected} bytes for shape {shape}, "
            f"got {len(output.values)}"
        )
    return np.frombuffer(output.values, dtype="<f4").astype(np.float32).reshape(shape)
