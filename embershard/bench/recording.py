"""Reads what ``embershard serve --record`` wrote: ``proto/embershard/v1/recording.proto``."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from embershard._proto import recording_pb2 as pb
from embershard.errors import InputError

__all__ = ["RecordedCall", "Recording", "read_recording"]

MAGIC: Final = "embershard recording"
FORMAT: Final = 1
SIZE: Final = struct.Struct("<I")

HEADER_BYTES_MAX: Final = 1 << 16
"""Far more than any header has: the size at the front of a file of another kind is beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call, as it came in and as it was answered."""

    arrival_unix_us: int
    """Microseconds since 1970."""

    request: bytes
    """A serialized ``PredictRequest``."""

    code: int
    """gRPC's status; 0 is OK."""

    message: str
    """Of the status."""

    response: bytes
    """A serialized ``PredictResponse``; empty unless OK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A file, all of it."""

    model: str
    version: int

    fingerprint: int
    """Of the model's schema, as ``GetModel`` gave it."""

    share: float
    """Of the calls, that were to be recorded."""

    calls: Sequence[RecordedCall]
    """In the order in which they ended."""

    torn_bytes: int
    """At the end, of a record that was not written whole; left out."""


def read_recording(path: str | Path) -> Recording:
    """Read a whole file.

    Args:
        path: as ``--record`` named it. The server may still be writing.

    Raises:
        InputError: there is no such file, it is of another kind or format, or damaged.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    messages = list(_messages(data))
    if not messages or len(messages[0]) > HEADER_BYTES_MAX:
        raise InputError(f"{path}: expected a recording of embershard serve --record, got none")
    header = _header(path, messages[0])
    whole = sum(SIZE.size + len(each) for each in messages)
    return Recording(
        model=header.model,
        version=header.version,
        fingerprint=header.schema,
        share=header.share,
        calls=[_call(path, place, each) for place, each in enumerate(messages[1:], 1)],
        torn_bytes=len(data) - whole,
    )


def _messages(data: bytes) -> Iterator[memoryview]:
    """Those that are there whole."""
    view, at = memoryview(data), 0
    while at + SIZE.size <= len(data):
        (size,) = SIZE.unpack_from(data, at)
        at += SIZE.size + size
        if at > len(data):
            return
        yield view[at - size : at]


def _header(path: Path, message: memoryview) -> pb.RecordingHeader:
    header = pb.RecordingHeader()
    try:
        header.ParseFromString(message.tobytes())
    except DecodeError:
        header.Clear()
    if header.magic != MAGIC:
        raise InputError(f"{path}: expected a recording of embershard serve --record, got none")
    if header.format != FORMAT:
        raise InputError(
            f"{path}: expected a recording of format {FORMAT}, got {header.format}: "
            "another release of embershard wrote it"
        )
    return header


def _call(path: Path, place: int, message: memoryview) -> RecordedCall:
    call = pb.RecordedCall()
    try:
        call.ParseFromString(message.tobytes())
    except DecodeError as error:
        raise InputError(f"{path}: record {place} is damaged") from error
    return RecordedCall(
        arrival_unix_us=call.arrival_unix_us,
        request=call.request,
        code=call.code,
        message=call.message.decode(errors="replace"),
        response=call.response,
    )
