"""A recording's requests as samples of a package."""

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.recording import recorded_samples
from embershard.errors import InputError
from embershard.package import Package
from tests.bench.recordings import call, write_recording
from tests.cases import cases
from tests.hostile.draft import GOLDEN

MANIFEST = Package.open(GOLDEN).manifest
SCHEMA = int(MANIFEST.fingerprint, 16)


def named_request():
    """Two examples; tags of the request are left out."""
    message = pb.PredictRequest(num_examples=2)
    lists = {"user": ([1], [7]), "item": ([2, 1], [10, 11, 12])}
    for name, (lengths, values) in lists.items():
        message.sparse.add(
            name=name,
            lengths=np.array(lengths, "<i4").tobytes(),
            values=np.array(values, "<i8").tobytes(),
        )
    return message


def packed_request():
    packed = pb.Packed(
        schema=SCHEMA,
        lengths=np.array([1, 0, 2, 1], "<i4").tobytes(),
        values=np.array([7, 10, 11, 12], "<i8").tobytes(),
    )
    return pb.PredictRequest(num_examples=2, packed=packed)


def recorded(path, *requests, schema=SCHEMA):
    calls = [call(each.SerializeToString(), at) for at, each in enumerate(requests)]
    return write_recording(path, calls, schema=schema)


@pytest.mark.parametrize("request_of", [named_request, packed_request])
def test_both_forms_give_the_lists_of_every_input(tmp_path, request_of):
    (sample,) = recorded_samples(recorded(tmp_path / "file", request_of()), MANIFEST)
    names = [each.name for each in MANIFEST.sparse]
    assert names == ["user", "tags", "item"]
    assert sample.num_examples == 2
    assert sample.lengths.tolist() == [1, 0, 2, 1]
    assert sample.values.tolist() == [7, 10, 11, 12]


def test_requests_that_were_refused_are_left_out(tmp_path):
    calls = [call(b"", 1, code=3), call(packed_request().SerializeToString(), 2)]
    file = write_recording(tmp_path / "file", calls, schema=SCHEMA)
    assert len(recorded_samples(file, MANIFEST)) == 1


@cases(
    ("calls", "schema", "words"),
    {
        "none": ([], SCHEMA, "expected requests that were answered, got none"),
        "refused": ([call(b"", 1, code=3)], SCHEMA, "that were answered, got none"),
        "schema": ([], 1, "got 0000000000000001"),
        "no-message": ([call(b"\xff", 1)], SCHEMA, "record 1: expected a request"),
        "lengths": (
            [
                call(
                    pb.PredictRequest(
                        num_examples=3, packed=packed_request().packed
                    ).SerializeToString(),
                    1,
                )
            ],
            SCHEMA,
            "record 1: expected a request of the package: .*lengths",
        ),
    },
)
def test_a_recording_that_is_no_load_is_refused(tmp_path, calls, schema, words):
    file = write_recording(tmp_path / "file", calls, schema=schema)
    with pytest.raises(InputError, match=words):
        recorded_samples(file, MANIFEST)
