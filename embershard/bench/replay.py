"""Recorded requests to send again, and a comparison of the answers with the recorded ones."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from embershard._proto import predictor_pb2 as pb
from embershard._proto import recording_pb2
from embershard.bench.load_options import PooledRequest
from embershard.bench.recording import Recording, read_recording
from embershard.client import ServedModel
from embershard.errors import InputError

Outputs = Mapping[str, tuple[tuple[int, ...], NDArray[np.float32]]]
"""Shape and values by name."""

TOLERANCE: Final = 1e-5
"""Largest distance of two equal answers; relative to values beyond 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A file's requests, in the order in which they arrived."""

    path: Path
    recording: Recording
    calls: Sequence[recording_pb2.RecordedCall]

    requests: Sequence[PooledRequest]
    """The requests of the calls, byte for byte; due when they arrived, the first at 0."""

    def check_model(self, served: ServedModel) -> None:
        """Check that a model has the schema of the recorded one. `InputError`: another schema."""
        if served.fingerprint != self.recording.fingerprint:
            raise InputError(
                f"{self.path}: recorded from {self.recording.model} {self.recording.version} with "
                f"schema {self.recording.fingerprint:016x}; expected that schema at the target, "
                f"got {served.fingerprint:016x} of {served.name} {served.version}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """The first answer to each request, compared with the recorded one."""

    compared: int
    """Answers that were OK then and now, by the same version of the same model."""

    different: int
    """Compared answers that differ by more than the tolerance, or in names or shapes of outputs."""

    largest_difference: float
    """The largest distance of two values of outputs alike in name and shape."""

    first_different: int | None
    """The place of the first such answer in the replay, from 1."""

    other_version: int
    """Answers by another version or model, which are not compared."""


def read_replay(path: Path) -> Replay:
    """Read a recording as requests to send."""
    recording = read_recording(path)
    if not recording.calls:
        raise InputError(f"{path}: expected recorded calls, got a recording without any")
    calls = sorted(recording.calls, key=lambda call: call.arrival_unix_us)
    begin = calls[0].arrival_unix_us
    requests: list[PooledRequest] = []
    for place, call in enumerate(calls, 1):
        message = _message(path, place, call)
        due_seconds = (call.arrival_unix_us - begin) * 1e-6
        requests.append(
            PooledRequest(call.request, message.num_examples, _count_ids(message), due_seconds)
        )
    return Replay(path=path, recording=recording, calls=calls, requests=requests)


def check_answers(replay: Replay, answers: Sequence[bytes | None]) -> AnswerCheck:
    """Compare the answers of a run: for each request the first that was OK, or None."""
    compared, other_version = 0, 0
    different: list[int] = []
    largest = 0.0
    for place, (call, answer) in enumerate(zip(replay.calls, answers, strict=True), 1):
        if call.code != 0 or answer is None:
            continue
        recorded = pb.PredictResponse.FromString(call.response)
        given = _response(answer)
        if (given.model, given.version) != (recorded.model, recorded.version):
            other_version += 1
            continue
        compared += 1
        same, distance = _compare(_outputs(recorded.outputs), _outputs(given.outputs))
        largest = max(largest, distance)
        if not same:
            different.append(place)
    return AnswerCheck(
        compared=compared,
        different=len(different),
        largest_difference=largest,
        first_different=min(different, default=None),
        other_version=other_version,
    )


def _message(path: Path, place: int, call: recording_pb2.RecordedCall) -> pb.PredictRequest:
    message = pb.PredictRequest()
    try:
        message.ParseFromString(call.request)
        if call.code == 0:
            pb.PredictResponse.FromString(call.response)
    except DecodeError as error:
        raise InputError(f"{path}: record {place} holds no request and answer") from error
    return message


def _count_ids(message: pb.PredictRequest) -> int:
    values = [message.packed.values, *(each.values for each in message.sparse)]
    return sum(len(each) for each in values) // 8


def _response(answer: bytes) -> pb.PredictResponse:
    response = pb.PredictResponse()
    try:
        response.ParseFromString(answer)
    except DecodeError:  # Another make of server: its version equals no recorded one.
        return pb.PredictResponse(version=-1)
    return response


def _outputs(outputs: Iterable[pb.Output]) -> Outputs:
    return {
        each.name: (tuple(each.shape), np.frombuffer(each.values[: len(each.values) & ~3], "<f4"))
        for each in outputs
    }


def _compare(recorded: Outputs, given: Outputs) -> tuple[bool, float]:
    """True if they are equal within the tolerance, and the largest distance between values."""
    same, largest = recorded.keys() == given.keys(), 0.0
    for name in recorded.keys() & given.keys():
        (shape, before), (shape_now, now) = recorded[name], given[name]
        if shape != shape_now or len(before) != len(now):
            same = False
            continue
        distance = np.abs(before.astype(np.float64) - now)
        same &= bool((distance <= TOLERANCE * np.maximum(1, np.abs(before))).all())
        largest = max(largest, float(distance.max(initial=0)))
    return same, largest
