"""What a server says of a model it serves: the answer to GetModel, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from embershard._proto import predictor_pb2 as pb
from embershard.errors import InternalError

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
    """Dense: what stands in when the input is left out. None: it is required."""

    weighted: bool = False
    """Sparse: every id comes with a weight."""

    max_ids: int = 0
    """Sparse: ids that count in one list. 0: no limit of its own."""

    known_ids: int = 0
    """Sparse: ids 0 .. known_ids - 1 are known. 0: a vocabulary, or a server that does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOutput:
    """One output of a served model: float32, shape ``(num_examples or 1, *shape)``."""

    name: str
    scope: Scope
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
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

    @property
    def dense(self) -> tuple[ServedInput, ...]:
        return tuple(item for item in self.inputs if item.kind == "dense")

    @property
    def sparse(self) -> tuple[ServedInput, ...]:
        return tuple(item for item in self.inputs if item.kind == "sparse")


def served_model(message: pb.GetModelResponse) -> ServedModel:
    """Read a GetModel answer.

    Raises:
        InternalError: the server speaks of a scope or kind that this client does not know.
    """
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
        )
    raise InternalError(
        f"input {message.name!r}: expected a dense or a sparse input, got neither; "
        "is the server newer than this client?"
    )


def _scope(name: str, value: int) -> Scope:
    if value not in SCOPES:
        raise InternalError(f"{name!r}: expected a scope in {sorted(SCOPES)}, got {value}")
    return SCOPES[value]
