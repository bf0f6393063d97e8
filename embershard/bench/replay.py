"""Replays a recording: its requests in order, and a comparison of the answers."""

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
TOLERANCE: Final = 1e-5
"""Largest difference of two values that count as equal. Relative for values above 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The requests of a recording, in the order in which they arrived."""

    path: Path
    recording: Recording
    calls: Sequence[recording_pb2.RecordedCall]

    requests: Sequence[PooledRequest]
    """The requests of ``calls``, byte for byte, due at their times of arrival. The first is due
    at 0."""

    def check_model(self, served: ServedModel) -> None:
        if served.fingerprint != self.recording.fingerprint:
            raise InputError(
                f"{self.path}: expected the target to serve schema "
                f"{self.recording.fingerprint:016x} of {self.recording.model} "
                f"{self.recording.version}, got {served.fingerprint:016x} of {served.name} "
                f"{served.version}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """Compares the first answer to each request with the recorded answer."""

    compared: int
    """Requests that the same version of the same model answered OK, in recording and replay."""

    different: int
    """Compared answers whose outputs differ in name or shape, or by more than the tolerance."""

    largest_difference: float
    """Largest difference of two values, of outputs with equal names and shapes."""

    first_different: int | None
    """Position in the replay, from 1, of the first answer in ``different``."""

    other_version: int
    """Answers of another version or model, which are not compared."""


def read_replay(path: Path) -> Replay:
    recording = read_recording(path)
    if not recording.calls:
        raise InputError(f"{path}: expected recorded calls, got none")
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
    """Compare with the first OK answer to each request of a replay, or None."""
    compared, other_version = 0, 0
    different: list[int] = []
    largest = 0.0
    for place, (call, answer) in enumerate(zip(replay.calls, answers, strict=True), 1):
        if call.code != 0 or answer is None:
            continue
        recorded = pb.PredictResponse.FromString(call.response)
        response = _parse_response(answer)
        if (response.model, response.version) != (recorded.model, recorded.version):
            other_version += 1
            continue
        compared += 1
        same, distance = _compare(_outputs(recorded.outputs), _outputs(response.outputs))
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
        raise InputError(
            f"{path}: request {place} in order of arrival: expected a request and its answer, "
            "got other bytes"
        ) from error
    return message


def _count_ids(message: pb.PredictRequest) -> int:
    values = [message.packed.values, *(feature.values for feature in message.sparse)]
    return sum(map(len, values)) // 8


def _parse_response(answer: bytes) -> pb.PredictResponse:
    response = pb.PredictResponse()
    try:
        response.ParseFromString(answer)
    except DecodeError:  # From a server that is not ours. No recording has version -1.
        return pb.PredictResponse(version=-1)
    return response


def _outputs(outputs: Iterable[pb.Output]) -> Outputs:
    return {
        output.name: (
            tuple(output.shape),
            np.frombuffer(output.values[: len(output.values) & ~3], "<f4"),
        )
        for output in outputs
    }


def _compare(recorded: Outputs, replayed: Outputs) -> tuple[bool, float]:
    """Returns True if all outputs are equal within the tolerance, and the largest difference."""
    same, largest = recorded.keys() == replayed.keys(), 0.0
    for name in recorded.keys() & replayed.keys():
        (shape, before), (shape_now, now) = recorded[name], replayed[name]
        if shape != shape_now or len(before) != len(now):
            same = False
            continue
        distance = np.abs(before.astype(np.float64) - now)
        same &= bool((distance <= TOLERANCE * np.maximum(1, np.abs(before))).all())
        largest = max(largest, float(distance.max(initial=0)))
    return same, largest
