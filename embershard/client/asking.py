"""The messages of a request, whose arguments are checked first, and what its refusal means."""

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
"""Longer ones are this long: gRPC counts in nanoseconds of 64 bits, from 1970."""

VERSION_MAX = (1 << 63) - 1

TRAFFIC_KEY_BYTES_MAX = 1024

REQUEST_ID_BYTES_MAX = 1000
"""A server takes 1024; a stream puts a number before it."""

PriorityName: TypeAlias = Literal["interactive", "background"]

PRIORITIES: dict[str, pb.Priority] = {
    "interactive": pb.PRIORITY_UNSPECIFIED,  # Means the same, in no bytes.
    "background": pb.PRIORITY_BACKGROUND,
}

ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s/:\[\]]+):([0-9]{1,5})", re.ASCII)

HALF_A_PAIR = re.compile("[\ud800-\udfff]")
"""What a Python string may hold and UTF-8 may not."""


def check_address(address: object) -> str:
    """The address itself, if it is ``host:port``."""
    found = ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if found is None or not 1 <= int(found[1]) <= 65535:
        raise InputError(
            f"address: expected HOST:PORT, as in 127.0.0.1:50051 or [::1]:50051, got {address!r}"
        )
    return found[0]


def check_timeout(seconds: object) -> float:
    """Seconds to wait, at most a year."""
    number = None if isinstance(seconds, bool) else seconds
    if isinstance(number, (int, float, np.integer, np.floating)) and 0 < number < float("inf"):
        return float(min(number, TIMEOUT_SECONDS_MAX))
    raise InputError(f"timeout_seconds: expected more than 0 and finite, got {seconds!r:.40}")


def at_least_one(what: str, given: object) -> int:
    """A whole number from 1 up."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return given
    raise InputError(f"{what}: expected at least 1, got {given!r:.40}")


def name_of(what: str, given: object) -> str:
    """Text that UTF-8 can hold."""
    if isinstance(given, str) and not HALF_A_PAIR.search(given):
        return given
    raise InputError(f"{what}: expected text, got {given!r:.40}")


def _short_text(what: str, given: object, *, bytes_max: int) -> str:
    text = name_of(what, given)
    if (size := len(text.encode())) > bytes_max:
        raise InputError(f"{what}: expected at most {bytes_max} bytes, got {size}")
    return text


def names_of(what: str, given: object) -> list[str]:
    """A list of texts."""
    if isinstance(given, str):
        raise InputError(f"{what}: expected a list of names, got the string {given!r}")
    if not isinstance(given, Sequence):
        raise InputError(f"{what}: expected a list of names, got {given!r:.40}")
    return [name_of(f"{what}[{place}]", each) for place, each in enumerate(given)]


def priority_of(given: object) -> pb.Priority:
    """The priority of that name."""
    if isinstance(given, str) and given in PRIORITIES:
        return PRIORITIES[given]
    raise InputError(f"priority: expected interactive or background, got {given!r:.40}")


def version_of(given: object) -> int:
    """A version's number, or 0."""
    number = None if isinstance(given, bool) else given
    if isinstance(number, (int, np.integer)) and 0 <= number <= VERSION_MAX:
        return int(number)
    raise InputError(f"version: expected 0..{VERSION_MAX}, got {given!r:.40}")


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
        request_id=_short_text("request_id", request_id, bytes_max=REQUEST_ID_BYTES_MAX),
        priority=priority_of(priority),
        outputs=names_of("outputs", outputs),
        traffic_key=_short_text("traffic_key", traffic_key, bytes_max=TRAFFIC_KEY_BYTES_MAX),
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
