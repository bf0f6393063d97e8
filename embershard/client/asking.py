"""What a request for predictions says beside its inputs, and what its refusal means."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.client.arguments import (
    name_of,
    names_of,
    priority_of,
    request_id_of,
    traffic_key_of,
    version_of,
)
from embershard.client.packing import Inputs, pack
from embershard.client.schema import ServedModel
from embershard.client.status import error_for, pushback_seconds
from embershard.client.strings import with_string
from embershard.errors import EmbershardError, RequestError

__all__ = [
    "Names",
    "check_stream_size",
    "is_stale",
    "model_request",
    "names_in",
    "packed",
    "predict_request",
    "refusal",
    "refused",
]

ENVELOPE_BYTES = 32
"""What a stream adds to a request."""


Names = tuple[str, int, str]
"""Model, version and label, as they were asked for."""


def model_request(model: object, version: object, label: object) -> pb.GetModelRequest:
    """
    Raises:
        InputError: an argument of another type than asked for.
    """
    return pb.GetModelRequest(
        model=name_of("model", model), version=version_of(version), label=name_of("label", label)
    )


def predict_request(
    model: object,
    version: object,
    label: object,
    *,
    request_id: object,
    priority: object,
    outputs: Sequence[str],
    traffic_key: object,
) -> pb.PredictRequest:
    """A request without its inputs.

    Raises:
        InputError: an argument of another type than asked for.
    """
    return pb.PredictRequest(
        model=name_of("model", model),
        version=version_of(version),
        label=name_of("label", label),
        request_id=request_id_of(request_id),
        priority=priority_of(priority),
        outputs=names_of("outputs", outputs),
        traffic_key=traffic_key_of(traffic_key),
    )


def names_in(request: pb.PredictRequest | pb.GetModelRequest) -> Names:
    return request.model, request.version, request.label


def packed(schema: ServedModel, inputs: Inputs, request: pb.PredictRequest) -> pb.PredictRequest:
    """The request itself, with its inputs.

    Raises:
        RequestError: an input contradicts the schema.
    """
    request.num_examples = pack(schema, inputs, request.packed)
    return request


def check_stream_size(request: pb.PredictRequest, schema: ServedModel) -> None:
    """
    Raises:
        RequestError: a message so large would end the stream.
    """
    size, limit = request.ByteSize() + ENVELOPE_BYTES, schema.max_message_bytes
    if size > limit:
        raise RequestError(f"request: expected at most {limit} bytes, got {size}")


def is_stale(code: grpc.StatusCode) -> bool:
    """Whether the schema that a request was packed by is not the one served."""
    return code is grpc.StatusCode.FAILED_PRECONDITION


def refusal(
    code: grpc.StatusCode,
    details: str,
    *,
    address: str,
    schema: ServedModel,
    request: pb.PredictRequest,
    inputs: Inputs,
    retry_after_seconds: float | None,
    timeout_seconds: float | None = None,
) -> EmbershardError:
    """What a request's caller sees when the server did not answer it.

    Args:
        retry_after_seconds: as the server stated it. None: it did not.
        timeout_seconds: how long it had. None: not known here.
    """
    size, limit = request.ByteSize(), schema.max_message_bytes
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and size > limit:
        return RequestError(f"request: expected at most {limit} bytes, got {size}")
    error = error_for(
        code,
        details,
        address=address,
        retry_after_seconds=retry_after_seconds,
        timeout_seconds=timeout_seconds,
    )
    if isinstance(error, RequestError):
        return RequestError(with_string(str(error), inputs.sparse))
    return error


def refused(
    failure: grpc.RpcError,
    *,
    address: str,
    schema: ServedModel,
    request: pb.PredictRequest,
    inputs: Inputs,
    timeout_seconds: float,
) -> EmbershardError:
    """The same, of a call that failed."""
    return refusal(
        failure.code(),
        failure.details() or "no details",
        address=address,
        schema=schema,
        request=request,
        inputs=inputs,
        retry_after_seconds=pushback_seconds(failure),
        timeout_seconds=timeout_seconds,
    )
