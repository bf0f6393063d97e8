"""Recordings made by hand, as proto/embershard/v1/recording.proto lays them out."""

import struct
from pathlib import Path

import numpy as np
import xxhash

from embershard._proto import predictor_pb2 as pb
from embershard._proto import recording_pb2


def framed(message: bytes) -> bytes:
    size = struct.pack("<I", len(message))
    check_of_size = xxhash.xxh3_64_intdigest(size) & 0xFFFFFFFF
    return size + struct.pack("<IQ", check_of_size, xxhash.xxh3_64_intdigest(message)) + message


def header(**fields) -> bytes:
    """Header of a recording of the fake predictor."""
    return recording_pb2.RecordingHeader(
        **{
            "magic": "embershard recording",
            "format": 2,
            "model": "ranker",
            "version": 7,
            "schema": 0xABC,
            "share": 1.0,
            **fields,
        }
    ).SerializeToString()


def answer(score: float = 0.5, *, version: int = 7, name: str = "score") -> pb.PredictResponse:
    response = pb.PredictResponse(model="ranker", version=version)
    response.outputs.add(name=name, values=np.array([score], "<f4").tobytes(), shape=[1])
    return response


def call(
    request: bytes,
    at_us: int,
    *,
    response: pb.PredictResponse | None = None,
    code: int = 0,
    message: bytes = b"",
) -> bytes:
    response = response or answer()
    return recording_pb2.RecordedCall(
        arrival_unix_us=at_us,
        request=request,
        code=code,
        message=message,
        response=b"" if code else response.SerializeToString(),
    ).SerializeToString()


def write_recording(path: Path, calls: list[bytes], **fields) -> Path:
    path.write_bytes(b"".join(framed(item) for item in (header(**fields), *calls)))
    return path
