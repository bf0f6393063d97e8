"""The messages of a request, and what its refusal means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.client.arguments import (
    PriorityName,
    name_of,
    names_of,
    priority_of,
    request_id_of,
    traffic_key_of,
    version_of,
)
from embershard.client.packing import Inputs, pack
from embershard.client.schema import ServedModel
from embershard.client.strings import with_string
from embershard.errors import EmbershardError, RequestError

__all__ = [
    "Names",
    "PredictArguments",
    "check_stream_size",
    "model_request",
    "names_in",
    "pack_inputs",
    "predict_request",
    "refusal",
]

ENVELOPE_BYTES = 32
"""What a stream adds to a request."""

Names = tuple[str, int, str]
"""Model, version and label, as they were asked for."""


class PredictArguments(TypedDict, total=False):
    """What `Client.predict` and the streams take of a request, but the model and the timeout."""

    dense: object | None
    sparse: Mapping[str, object] | None
    weights: Mapping[str, object] | None
    num_examples: int | None
    outputs: Sequence[str]
    request_id: str
    priority: PriorityName
    traffic_key: str


def model_request(model: object, version: object, label: object) -> pb.GetModelRequest:
    """
    Raises:
        InputError: an argument of another type than asked for.
    """
    return pb.GetModelRequest(
        model=name_of("model", model), version=version_of(version), label=name_of("label", label)
    )


def predict_request(
    names: tuple[object, object, object],
    *,
    dense: object | None = None,
    sparse: Mapping[str, object] | None = None,
    weights: Mapping[str, object] | None = None,
    num_examples: int | None = None,
    outputs: Sequence[str] = (),
    request_id: str = "",
    priority: PriorityName = "interactive",
    traffic_key: str = "",
) -> tuple[pb.PredictRequest, Inputs]:
    """A request without its inputs, and these.

    Raises:
        InputError: an argument of another type than asked for.
    """
    model, version, label = names
    request = pb.PredictRequest(
        model=name_of("model", model),
        version=version_of(version),
        label=name_of("label", label),
        request_id=request_id_of(request_id),
        priority=priority_of(priority),
        outputs=names_of("outputs", outputs),
        traffic_key=traffic_key_of(traffic_key),
    )
    return request, Inputs(dense=dense, sparse=sparse, weights=weights, num_examples=num_examples)


def names_in(request: pb.PredictRequest | pb.GetModelRequest) -> Names:
    return request.model, request.version, request.label


def pack_inputs(schema: ServedModel, inputs: Inputs, request: pb.PredictRequest) -> None:
    """Sets the inputs of a request.

    Raises:
        RequestError: an input contradicts the schema.
    """
    request.num_examples = pack(schema, inputs, request.packed)


def check_stream_size(request: pb.PredictRequest, schema: ServedModel) -> None:
    """
    Raises:
        RequestError: a message so large would end the stream.
    """
    if request.ByteSize() + ENVELOPE_BYTES > schema.max_message_bytes:
        raise _too_large(request.ByteSize() + ENVELOPE_BYTES, schema)


def refusal(
    code: grpc.StatusCode,
    error: EmbershardError,
    schema: ServedModel,
    request: pb.PredictRequest,
    inputs: Inputs,
) -> EmbershardError:
    """The error that a request's caller sees.

    Args:
        error: as the server's code and message say it.
    """
    size = request.ByteSize()
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and size > schema.max_message_bytes:
        return _too_large(size, schema)
    if isinstance(error, RequestError):
        return RequestError(with_string(str(error), inputs.sparse))
    return error


def _too_large(size: int, schema: ServedModel) -> RequestError:
    return RequestError(f"request: expected at most {schema.max_message_bytes} bytes, got {size}")
