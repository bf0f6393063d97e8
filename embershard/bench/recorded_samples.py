"""The requests of a recording as a package's samples, for what they look up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from embershard._proto import predictor_pb2 as pb
from embershard.bench.recording import read_recording
from embershard.errors import InputError, PackageError
from embershard.package import Manifest, SampleRequest
from embershard.package.samples import check_samples

OK = 0


def recorded_samples(path: Path, manifest: Manifest) -> list[SampleRequest]:
    """Read the requests that were answered. Dense inputs and weights are left at 0. ``manifest``:
    of a package with the schema of the recorded one."""
    recording = read_recording(path)
    if recording.fingerprint != int(manifest.fingerprint, 16):
        raise InputError(
            f"{path}: recorded from {recording.model} {recording.version}: expected schema "
            f"{manifest.fingerprint} of the package, got {recording.fingerprint:016x}"
        )
    samples = list[SampleRequest]()
    for place, call in enumerate(recording.calls, 1):
        if call.code != OK:
            continue
        try:
            message = pb.PredictRequest.FromString(call.request)
            sample = _sample(message, manifest)
            check_samples([sample], manifest, file=str(path), outputs=False)
        except (DecodeError, ValueError, PackageError) as error:
            raise InputError(
                f"{path}: record {place}: expected a request of the package: {error}"
            ) from error
        if sample.num_examples:
            samples.append(sample)
    if not samples:
        raise InputError(f"{path}: expected requests that were answered, got none")
    return samples


def _sample(message: pb.PredictRequest, manifest: Manifest) -> SampleRequest:
    examples = message.num_examples
    counts = {"request": 1, "example": examples}
    named = {each.name: each for each in message.sparse}
    if message.HasField("packed"):
        lengths = np.frombuffer(message.packed.lengths, "<i4")
        values = np.frombuffer(message.packed.values, "<i8")
    else:
        empty = pb.SparseValues()
        found = [named.get(each.name, empty) for each in manifest.sparse]
        lengths = np.concatenate(
            [
                np.frombuffer(each.lengths, "<i4")
                if each.lengths
                else np.zeros(counts[spec.scope], np.int32)
                for each, spec in zip(found, manifest.sparse, strict=True)
            ]
            or [np.zeros(0, np.int32)]
        )
        values = np.concatenate(
            [np.frombuffer(each.values, "<i8") for each in found] or [np.zeros(0, np.int64)]
        )
    dense = {scope: sum(each.scope == scope for each in manifest.dense) for scope in counts}
    return SampleRequest(
        num_examples=examples,
        request_dense=np.zeros(dense["request"], np.float32),
        example_dense=np.zeros((examples, dense["example"]), np.float32),
        lengths=lengths.astype(np.int32),
        values=values.astype(np.int64),
        weights=np.zeros(_weighted_ids(lengths, manifest, counts), np.float32),
        outputs={},
    )


def _weighted_ids(lengths: np.ndarray, manifest: Manifest, counts: dict[str, int]) -> int:
    place, total = 0, 0
    for each in manifest.sparse:
        end = place + counts[each.scope]
        total += int(lengths[place:end].sum()) if each.weighted else 0
        place = end
    return total
