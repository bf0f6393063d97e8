"""Reads recordings (``proto/embershard/v1/recording.proto``) and turns them into samples."""

import itertools
import math
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from embershard._proto import predictor_pb2 as pb
from embershard._proto import recording_pb2
from embershard.errors import InputError, PackageError
from embershard.package import Manifest, SampleRequest
from embershard.package.samples import check_samples
from embershard.package.schema import Scope

MAGIC: Final = "embershard recording"
FORMAT: Final = 2

FRAME: Final = struct.Struct("<IIQ")
"""Frame before each message.

    uint32   size of the message in bytes
    uint32   lower half of the checksum of that size
    uint64   checksum of the message
"""

SIZE_BYTES: Final = 4

HEADER_BYTES_MAX: Final = 1 << 16
"""A larger size at the front of a file shows that it is no recording."""

FILE_BYTES_MAX: Final = 1 << 30
"""Size at which a server ends its recording."""

ARRIVAL_UNIX_US_MAX: Final = 1 << 52
"""Latest valid time of arrival, in the year 2112."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    model: str
    version: int

    fingerprint: int
    """Fingerprint of the model's schema, as ``GetModel`` returns it."""

    share: float
    """Share of all calls that the server recorded, 0..1."""

    calls: Sequence[recording_pb2.RecordedCall]
    """The recorded calls, in the order in which they ended."""

    torn_bytes: int
    """Bytes of an incomplete record at the end of the file, which is not in ``calls``."""


def read_recording(path: str | Path) -> Recording:
    """Read a recording, which a server may still write. `InputError`: it is none, or is damaged."""
    path = Path(path)
    data = _read(path)
    header = _header(path, data)
    messages = list(_messages(path, data))
    whole = sum(FRAME.size + len(message) for message in messages)
    return Recording(
        model=header.model,
        version=header.version,
        fingerprint=header.schema,
        share=header.share,
        calls=[_call(path, place, message) for place, message in enumerate(messages[1:], 1)],
        torn_bytes=len(data) - whole,
    )


def _read(path: Path) -> bytes:
    try:
        # O_NONBLOCK: opening a pipe would wait for a writer otherwise.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"{path}: expected a recording, got no regular file")
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise InputError(
            f"{path}: expected a recording of at most {FILE_BYTES_MAX:,} bytes, got more"
        )
    return data


def _messages(path: Path, data: bytes) -> Iterator[memoryview]:
    view, at = memoryview(data), 0
    for place in itertools.count():
        if at + FRAME.size > len(data):
            return
        size, check_of_size, check = FRAME.unpack_from(data, at)
        if xxh3_64_intdigest(view[at : at + SIZE_BYTES]) % (1 << 32) != check_of_size:
            raise InputError(f"{path}: record {place} is damaged: its size has another checksum")
        at += FRAME.size + size
        if at > len(data):
            return
        message = view[at - size : at]
        if xxh3_64_intdigest(message) != check:
            raise InputError(f"{path}: record {place} is damaged: its bytes have another checksum")
        yield message


def _header(path: Path, data: bytes) -> recording_pb2.RecordingHeader:
    header = recording_pb2.RecordingHeader()
    size = FRAME.unpack_from(data)[0] if len(data) >= FRAME.size else 0
    if 0 < size <= min(HEADER_BYTES_MAX, len(data) - FRAME.size):
        try:
            header.ParseFromString(data[FRAME.size : FRAME.size + size])
        except DecodeError:
            header.Clear()
    if header.magic != MAGIC:
        raise InputError(f"{path}: expected a recording of embershard serve --record, got none")
    if header.format != FORMAT:
        raise InputError(
            f"{path}: expected a recording of format {FORMAT}, got format {header.format} of "
            "another release of embershard"
        )
    return header


def _call(path: Path, place: int, message: memoryview) -> recording_pb2.RecordedCall:
    call = recording_pb2.RecordedCall()
    try:
        call.ParseFromString(message.tobytes())
    except DecodeError as error:
        raise InputError(f"{path}: record {place} is damaged") from error
    if not 0 <= call.arrival_unix_us <= ARRIVAL_UNIX_US_MAX:
        raise InputError(
            f"{path}: record {place}: arrival: expected 0 .. {ARRIVAL_UNIX_US_MAX} microseconds "
            f"since 1970, got {call.arrival_unix_us}"
        )
    return call


OK = 0  # The gRPC status.


def recorded_samples(
    path: Path, manifest: Manifest, *, most: int | None = None
) -> list[SampleRequest]:
    """Read answered requests, with outputs. Weights of ids are set to 0. ``manifest`` has the
    recorded schema. ``most``: number of requests, spread evenly over the recording. None: all."""
    recording = read_recording(path)
    if recording.fingerprint != int(manifest.fingerprint, 16):
        raise InputError(
            f"{path}: expected the package's schema {manifest.fingerprint}, got "
            f"{recording.fingerprint:016x} of {recording.model} {recording.version}"
        )
    samples = list[SampleRequest]()
    answered = [(place, call) for place, call in enumerate(recording.calls, 1) if call.code == OK]
    step = 1 if most is None else max(1, math.ceil(len(answered) / most))
    for place, call in answered[::step]:
        try:
            sample = _sample(call, manifest)
            check_samples([sample], manifest, file=str(path), outputs=False)
        except (DecodeError, ValueError, PackageError) as error:
            raise InputError(
                f"{path}: record {place}: expected a request that fits the package, got {error}"
            ) from error
        if sample.num_examples:
            samples.append(sample)
    if not samples:
        raise InputError(f"{path}: expected answered requests with examples, got none")
    return samples


def _sample(call: recording_pb2.RecordedCall, manifest: Manifest) -> SampleRequest:
    message = pb.PredictRequest.FromString(call.request)
    counts: dict[Scope, int] = {"request": 1, "example": message.num_examples}
    lengths, values = _lists(message, manifest, counts)
    lists = np.split(lengths, np.cumsum([counts[spec.scope] for spec in manifest.sparse]))
    weighted_ids = sum(
        int(list_lengths.sum())
        for list_lengths, spec in zip(lists, manifest.sparse, strict=False)
        if spec.weighted
    )
    outputs = pb.PredictResponse.FromString(call.response).outputs
    return SampleRequest(
        num_examples=message.num_examples,
        request_dense=_dense(message, manifest, "request", 1)[0],
        example_dense=_dense(message, manifest, "example", message.num_examples),
        lengths=lengths.astype(np.int32),
        values=values.astype(np.int64),
        weights=np.zeros(weighted_ids, np.float32),
        outputs={
            output.name: np.frombuffer(output.values, "<f4").reshape(tuple(output.shape))
            for output in outputs
        },
    )


def _dense(
    message: pb.PredictRequest, manifest: Manifest, scope: Scope, rows: int
) -> NDArray[np.float32]:
    """Values ``[rows, inputs]``."""
    specs = [spec for spec in manifest.dense if spec.scope == scope]
    if message.HasField("packed"):
        packed = message.packed
        values = packed.request_dense if scope == "request" else packed.example_dense
        return np.frombuffer(values, "<f4").reshape(rows, len(specs))
    named = {item.name: np.frombuffer(item.values, "<f4") for item in message.dense}
    dense = np.empty((rows, len(specs)), np.float32)
    for column, spec in enumerate(specs):
        dense[:, column] = named.get(spec.name, spec.default or 0.0)
    return dense


def _lists(
    message: pb.PredictRequest, manifest: Manifest, counts: Mapping[Scope, int]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Lengths and values of all sparse inputs. ``counts``: number of an input's lists by scope."""
    if message.HasField("packed"):
        packed = message.packed
        return np.frombuffer(packed.lengths, "<i4"), np.frombuffer(packed.values, "<i8")
    named = {item.name: item for item in message.sparse}
    inputs = [named.get(spec.name, pb.SparseValues()) for spec in manifest.sparse]
    lengths, values = [np.zeros(0, "<i4")], [np.zeros(0, "<i8")]
    for item, spec in zip(inputs, manifest.sparse, strict=True):
        item_lengths = np.frombuffer(item.lengths, "<i4")
        lengths.append(item_lengths if item.lengths else np.zeros(counts[spec.scope], "<i4"))
        values.append(np.frombuffer(item.values, "<i8"))
    return np.concatenate(lengths), np.concatenate(values)
