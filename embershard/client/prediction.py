"""The answers of a server, to GetModel and to Predict, as plain values."""

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
    """Given once for each example, or once for the whole request."""

    default: float | None = None
    """Dense: the value where a request leaves the input out. None: requests must give it."""

    weighted: bool = False
    """Sparse: every id comes with a weight."""

    max_ids: int = 0
    """Sparse: ids that count in one list. 0: no limit of its own."""

    known_ids: int = 0
    """Sparse: ids 0 .. known_ids - 1 are known. 0: a vocabulary, or a server that does not say."""

    hashed: bool = False
    """Sparse: any id is known, and stands for one of ``known_ids`` buckets."""


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
    """XXH3-64 of inputs and outputs; travels with packed requests."""

    inputs: tuple[ServedInput, ...]
    """In the order of the packed form: dense inputs first, then sparse ones."""

    outputs: tuple[ServedOutput, ...]

    max_examples: int
    """Per request."""

    max_ids: int
    """Per request, over all sparse inputs."""

    max_message_bytes: int

    @cached_property
    def dense(self) -> tuple[ServedInput, ...]:
        return tuple(item for item in self.inputs if item.kind == "dense")

    @cached_property
    def sparse(self) -> tuple[ServedInput, ...]:
        return tuple(item for item in self.inputs if item.kind == "sparse")


def served_model(message: pb.GetModelResponse) -> ServedModel:
    """Read a GetModel answer. `InternalError`: the server speaks of a scope or kind that this
    client does not know."""
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
    """Where the server spent its time, in microseconds."""

    queue_us: int
    """Waiting for the batch to start."""

    lookup_us: int
    """The lookups of the whole batch."""

    dense_us: int
    """The dense program of the whole batch."""

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
    """How many ids the model does not know, for each feature where there were any."""

    request_id: str = ""

    def __getitem__(self, name: str) -> npt.NDArray[np.float32]:
        """
        Raises:
            NotFoundError: no such output; it is a KeyError as well.
        """
        if name not in self.outputs:
            known = ", ".join(map(repr, self.outputs)) or "none"
            raise _NoSuchOutputError(f"output {name!r}: expected one of the answer's, {known}")
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


class _NoSuchOutputError(NotFoundError, KeyError):
    """As a mapping has it, and as this library has it."""

    __str__ = Exception.__str__  # A KeyError's would be in quotes.


def prediction(message: pb.PredictResponse) -> Prediction:
    """Read a Predict answer. `InternalError`: an output's bytes do not fill its shape, or that is
    none."""
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
        raise InternalError(f"output {output.name!r}: expected sizes from 0 up, got shape {shape}")
    expected = 4 * math.prod(shape)
    if len(output.values) != expected:
        raise InternalError(
            f"output {output.name!r}: expected {expected} bytes for shape {shape}, "
            f"got {len(output.values)}"
        )
    return np.frombuffer(output.values, dtype="<f4").astype(np.float32).reshape(shape)
