"""Checks the arguments of a request, makes its messages, and explains its refusal."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

import grpc
import numpy as np

from embershard._proto import predictor_pb2 as pb
from embershard.client.arrays import Lists, ids_of
from embershard.client.packing import Inputs, pack
from embershard.client.prediction import ServedModel
from embershard.errors import EmbershardError, InputError, RequestError

TIMEOUT_SECONDS_MAX = 365.0 * 24 * 3600
"""Limit of timeouts, since gRPC's times are 64-bit nanoseconds since 1970."""

VERSION_MAX = (1 << 63) - 1

TRAFFIC_KEY_BYTES_MAX = 1024

REQUEST_ID_BYTES_MAX = 1000
"""A server accepts 1024 bytes, and a stream adds a number."""

PriorityName: TypeAlias = Literal["interactive", "background"]

PRIORITIES: dict[str, pb.Priority] = {
    "interactive": pb.PRIORITY_UNSPECIFIED,  # Has the same meaning and takes no bytes.
    "background": pb.PRIORITY_BACKGROUND,
}

ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s/:\[\]]+):([0-9]{1,5})", re.ASCII)

SURROGATE = re.compile("[\ud800-\udfff]")
"""Characters that a Python string may contain but UTF-8 cannot encode."""


def check_address(address: object) -> str:
    """Return the address, if it is ``host:port``."""
    match = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or not 1 <= int(match[1]) <= 65535:
        raise InputError(
            f"address: expected HOST:PORT, as in 127.0.0.1:50051 or [::1]:50051, got {address!r}"
        )
    return match[0]


def check_timeout(seconds: object) -> float:
    """Return the timeout, reduced to a year if it is longer."""
    number = None if isinstance(seconds, bool) else seconds
    if isinstance(number, (int, float, np.integer, np.floating)) and 0 < number < float("inf"):
        return float(min(number, TIMEOUT_SECONDS_MAX))
    raise InputError(f"timeout_seconds: expected more than 0 and finite, got {seconds!r:.40}")


def at_least_one(argument: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise InputError(f"{argument}: expected at least 1, got {value!r:.40}")


def name_of(argument: str, value: object) -> str:
    """Return the value, if it is a text that UTF-8 can encode."""
    if isinstance(value, str) and not SURROGATE.search(value):
        return value
    raise InputError(f"{argument}: expected text, got {value!r:.40}")


def _short_text(argument: str, value: object, *, bytes_max: int) -> str:
    text = name_of(argument, value)
    if (size := len(text.encode())) > bytes_max:
        raise InputError(f"{argument}: expected at most {bytes_max} bytes, got {size}")
    return text


def names_of(argument: str, value: object) -> list[str]:
    if isinstance(value, str):
        raise InputError(f"{argument}: expected a list of names, got the string {value!r}")
    if not isinstance(value, Sequence):
        raise InputError(f"{argument}: expected a list of names, got {value!r:.40}")
    return [name_of(f"{argument}[{place}]", name) for place, name in enumerate(value)]


def priority_of(value: object) -> pb.Priority:
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    raise InputError(f"priority: expected interactive or background, got {value!r:.40}")


def version_of(value: object) -> int:
    """Return the value, if it is the number of a version or 0."""
    number = None if isinstance(value, bool) else value
    if isinstance(number, (int, np.integer)) and 0 <= number <= VERSION_MAX:
        return int(number)
    raise InputError(f"version: expected 0..{VERSION_MAX}, got {value!r:.40}")


ENVELOPE_BYTES = 32
"""Number of bytes that a stream adds to a request at most."""

Names = tuple[str, int, str]


class PredictArguments(TypedDict, total=False):
    dense: object | None
    sparse: Mapping[str, object] | None
    weights: Mapping[str, object] | None
    num_examples: int | None
    outputs: Sequence[str]
    request_id: str
    priority: PriorityName
    traffic_key: str


def model_request(model: object, version: object, label: object) -> pb.GetModelRequest:
    """Make a GetModel message. Raises InputError for an argument of the wrong type."""
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
    """Make a message without inputs, and the inputs. Raises InputError for wrong types."""
    model, version, label = names
    request = pb.PredictRequest(
        model=name_of("model", model),
        version=version_of(version),
        label=name_of("label", label),
        request_id=_short_text("request_id", request_id, bytes_max=REQUEST_ID_BYTES_MAX),
        priority=priority_of(priority),
        outputs=names_of("outputs", outputs),
        traffic_key=_short_text("traffic_key", traffic_key, bytes_max=TRAFFIC_KEY_BYTES_MAX),
    )
    return request, Inputs(dense=dense, sparse=sparse, weights=weights, num_examples=num_examples)


def names_in(request: pb.PredictRequest | pb.GetModelRequest) -> Names:
    return request.model, request.version, request.label


def pack_inputs(schema: ServedModel, inputs: Inputs, request: pb.PredictRequest) -> None:
    """Set the inputs of a request. Raises RequestError for those that contradict the schema."""
    request.num_examples = pack(schema, inputs, request.packed)


def check_stream_size(request: pb.PredictRequest, schema: ServedModel) -> None:
    """Raise RequestError for a message that is so large that it would end the stream."""
    if request.ByteSize() + ENVELOPE_BYTES > schema.max_message_bytes:
        raise _too_large(request.ByteSize() + ENVELOPE_BYTES, schema)


def refusal(
    code: grpc.StatusCode,
    error: EmbershardError,
    schema: ServedModel,
    request: pb.PredictRequest,
    inputs: Inputs,
) -> EmbershardError:
    """The error to raise for a request, from the server's code and error."""
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
    """Add to a refusal of an id the string in ``sparse`` that has this id, if any."""
    match = REFUSED_ID.search(message)
    if match is None or sparse is None or match["feature"] not in sparse:
        return message
    for text in _strings_in(sparse[match["feature"]]):
        # Both unsigned and signed 64 bits, since id maps differ in how they read an id.
        hashed = ids_of(match["feature"], [text])
        if int(match["id"]) in (int(hashed[0]), int(hashed.view(np.uint64)[0])):
            return f"{message}; it stands for the string {text!r:.80}"
    return message


def _strings_in(lists: object) -> Iterator[str]:
    if isinstance(lists, str):
        yield str(lists)
    elif isinstance(lists, Lists):
        yield from _strings_in(lists.values)
    elif isinstance(lists, np.ndarray):
        if lists.dtype.kind in "OUT":
            yield from _strings_in(lists.tolist())
    elif isinstance(lists, Sequence):
        for item in lists:
            yield from _strings_in(item)
