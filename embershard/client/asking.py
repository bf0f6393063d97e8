"""The messages of a request, and what its refusal means."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

import grpc
import numpy as np

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
from embershard.client.arrays import Lists, ids_of
from embershard.client.packing import Inputs, pack
from embershard.client.prediction import ServedModel
from embershard.errors import EmbershardError, RequestError

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
    """`InputError`: an argument of another type than asked for."""
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
    """A request without its inputs, and these. `InputError`: an argument of another type than asked
    for."""
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
    """Sets the inputs of a request. `RequestError`: one contradicts the schema."""
    request.num_examples = pack(schema, inputs, request.packed)


def check_stream_size(request: pb.PredictRequest, schema: ServedModel) -> None:
    """`RequestError`: a message so large would end the stream."""
    if request.ByteSize() + ENVELOPE_BYTES > schema.max_message_bytes:
        raise _too_large(request.ByteSize() + ENVELOPE_BYTES, schema)


def refusal(
    code: grpc.StatusCode,
    error: EmbershardError,
    schema: ServedModel,
    request: pb.PredictRequest,
    inputs: Inputs,
) -> EmbershardError:
    """The error that a request's caller sees, of what the server's code and message say."""
    size = request.ByteSize()
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and size > schema.max_message_bytes:
        return _too_large(size, schema)
    if isinstance(error, RequestError):
        return RequestError(with_string(str(error), inputs.sparse))
    return error


def _too_large(size: int, schema: ServedModel) -> RequestError:
    return RequestError(f"request: expected at most {schema.max_message_bytes} bytes, got {size}")


REFUSED_ID = re.compile(r"feature '(?P<feature>.*?)': id (?P<id>-?[0-9]+) at ", re.ASCII)


def with_string(message: str, sparse: Mapping[str, object] | None) -> str:
    """A server's refusal of an id, with the string that the caller gave for it in ``sparse``. The
    message as it is if it is about something else, or the id was given as a number."""
    found = REFUSED_ID.search(message)
    if found is None or sparse is None or found["feature"] not in sparse:
        return message
    for text in _strings_in(sparse[found["feature"]]):
        # The hash as unsigned and as signed 64 bits: maps differ in how they read an id.
        hashed = ids_of(found["feature"], [text])
        if int(found["id"]) in (int(hashed[0]), int(hashed.view(np.uint64)[0])):
            return f"{message}; it stands for the string {text!r:.80}"
    return message


def _strings_in(given: object) -> Iterator[str]:
    """Every string in lists as `Client.predict` takes them."""
    if isinstance(given, str):
        yield str(given)
    elif isinstance(given, Lists):
        yield from _strings_in(given.values)
    elif isinstance(given, np.ndarray):
        if given.dtype.kind in "OUT":
            yield from _strings_in(given.tolist())
    elif isinstance(given, Sequence):
        for item in given:
            yield from _strings_in(item)
