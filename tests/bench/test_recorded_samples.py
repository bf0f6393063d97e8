"""A recording's requests as samples of a package."""

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench.recording import recorded_samples
from embershard.errors import InputError
from embershard.package import Package
from tests.bench.recordings import answer, call, write_recording
from tests.cases import cases
from tests.hostile.draft import GOLDEN

MANIFEST = Package.open(GOLDEN).manifest
SCHEMA = int(MANIFEST.fingerprint, 16)


def named_request():
    """Two examples. Tags of the request and prices are left out."""
    message = pb.PredictRequest(num_examples=2)
    message.dense.add(name="age", values=np.array([30], "<f4").tobytes())
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
        request_dense=np.array([30], "<f4").tobytes(),
        example_dense=np.array([0.25, 0.25], "<f4").tobytes(),
        lengths=np.array([1, 0, 2, 1], "<i4").tobytes(),
        values=np.array([7, 10, 11, 12], "<i8").tobytes(),
    )
    return pb.PredictRequest(num_examples=2, packed=packed)


def short():
    """Inputs with one length too few."""
    packed = packed_request().packed
    packed.lengths = packed.lengths[:-4]
    return packed


def profiled():
    """An answer with an output of the request's scope."""
    response = answer()
    response.outputs.add(name="profile", values=np.array([3, 4], "<f4").tobytes(), shape=[1, 2])
    return response


def recorded(path, *requests, schema=SCHEMA):
    calls = [
        call(request.SerializeToString(), at, response=profiled())
        for at, request in enumerate(requests)
    ]
    return write_recording(path, calls, schema=schema)


@pytest.mark.parametrize("request_of", [named_request, packed_request])
def test_both_forms_give_every_input_and_output(tmp_path, request_of):
    (sample,) = recorded_samples(recorded(tmp_path / "file", request_of()), MANIFEST)
    names = [feature.name for feature in MANIFEST.sparse]
    assert names == ["user", "tags", "item"]
    assert sample.num_examples == 2
    assert sample.lengths.tolist() == [1, 0, 2, 1]
    assert sample.values.tolist() == [7, 10, 11, 12]
    assert sample.request_dense.tolist() == [30]
    assert sample.example_dense.tolist() == [[0.25], [0.25]]
    outputs = {name: values.tolist() for name, values in sample.outputs.items()}
    assert outputs == {"score": [0.5], "profile": [[3, 4]]}


def test_a_limit_takes_requests_spread_over_the_recording(tmp_path):
    requests = [packed_request() for _ in range(7)]
    for place, request in enumerate(requests):
        request.packed.request_dense = np.array([place], "<f4").tobytes()
    file = recorded(tmp_path / "file", *requests)
    ages = [
        float(recorded_sample.request_dense[0])
        for recorded_sample in recorded_samples(file, MANIFEST, most=3)
    ]
    assert ages == [0, 3, 6]


def test_requests_that_were_refused_are_left_out(tmp_path):
    calls = [call(b"", 1, code=3), call(packed_request().SerializeToString(), 2)]
    file = write_recording(tmp_path / "file", calls, schema=SCHEMA)
    assert len(recorded_samples(file, MANIFEST)) == 1


@cases(
    ("calls", "schema", "words"),
    {
        "none": ([], SCHEMA, "expected answered requests with examples, got none"),
        "refused": (
            [call(b"", 1, code=3)],
            SCHEMA,
            "expected answered requests with examples, got none",
        ),
        "schema": ([], 1, "got 0000000000000001"),
        "no-message": ([call(b"\xff", 1)], SCHEMA, "record 1: expected a request"),
        "lengths": (
            [
                call(
                    pb.PredictRequest(num_examples=2, packed=short()).SerializeToString(),
                    1,
                )
            ],
            SCHEMA,
            "record 1: expected a request that fits the package, got .*lengths",
        ),
    },
)
def test_a_recording_that_is_no_load_is_refused(tmp_path, calls, schema, words):
    file = write_recording(tmp_path / "file", calls, schema=schema)
    with pytest.raises(InputError, match=words):
        recorded_samples(file, MANIFEST)
