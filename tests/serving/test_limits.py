"""What the package and the options leave of a request's size, and of its samples' exactness."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from embershard.client import Client
from embershard.errors import PackageError, RequestError
from embershard.package import read_samples, write_samples
from embershard.serving import Server, ServerOptions
from tests.cases import cases
from tests.serving.models import seal


def edited(package, folder, edit):
    """A copy of the package, which `edit(copy, manifest)` has changed, in a new repository."""
    copy = folder / "ranker" / "1"
    shutil.copytree(package, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    edit(copy, manifest)
    seal(copy, manifest)
    return folder


def limits_of(repository, **options):
    served = ServerOptions(port=0, threads=1, **options)
    with (
        Server(repository, options=served) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        model = client.get_model()
        return model.max_examples, model.max_ids


@pytest.fixture
def large(package, tmp_path):
    """Allows one request more than a batch holds by default."""
    limits = {"max_examples": 100_000, "max_ids": 1 << 24}
    return edited(package, tmp_path, lambda _, manifest: manifest.update(limits=limits))


@cases(
    ("options", "limits"),
    {
        "the-packages-own": ({}, (100_000, 1 << 24)),
        "examples": ({"max_request_examples": 5000}, (5000, 1 << 24)),
        "ids": ({"max_request_ids": 77}, (100_000, 77)),
        "not-a-batch": ({"max_batch_examples": 10, "max_batch_ids": 7}, (100_000, 1 << 24)),
        "a-short-queue": ({"max_queued_examples": 6000, "max_queued_ids": 88}, (6000, 88)),
    },
)
def test_a_request_may_hold_the_lesser_of_package_and_options(large, options, limits):
    assert limits_of(large, **options) == limits


def test_more_than_the_package_allows_is_not_to_be_had(repository):
    assert limits_of(repository, max_request_examples=5000, max_queued_examples=5000)[0] == 4096


def test_a_request_as_large_as_the_package_allows_is_served(large):
    with (
        Server(large, options=ServerOptions(port=0, threads=1)) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        scores = client.predict(dense={"age": 1, "price": np.ones(10_000)})["score"]
        assert scores.shape == (10_000,)
        with pytest.raises(RequestError, match="100000, got 100001"):
            client.predict(dense={"age": 1, "price": np.ones(100_001)})


def test_a_queue_shorter_than_the_batch_asked_for_is_refused(repository):
    options = ServerOptions(port=0, max_batch_examples=101, max_queued_examples=100)
    expected = r"max_queued_examples: expected at least 101 \(max_batch_examples\), got 100"
    with pytest.raises(RequestError, match=expected):
        Server(repository, options=options)


def test_a_queue_shorter_than_the_request_asked_for_is_refused(repository):
    options = ServerOptions(port=0, max_request_ids=101, max_queued_ids=100)
    expected = r"max_queued_ids: expected at least 101 \(max_request_ids\), got 100"
    with pytest.raises(RequestError, match=expected):
        Server(repository, options=options)


def test_messages_beyond_the_queues_bytes_are_refused(repository):
    options = ServerOptions(port=0, threads=1, max_queued_bytes=100_000)
    with (
        Server(repository, options=options) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        dense = {"age": 1, "price": np.ones(4)}
        assert client.predict(dense=dense)["score"].shape == (4,)
        ids = np.zeros(15_000, np.int64)
        with pytest.raises(RequestError, match="request: expected at most 100000 bytes, got 1"):
            client.predict(dense=dense, sparse={"user": ids})


def test_the_tolerance_of_samples_can_be_raised(package, tmp_path):
    def shift_scores(copy, manifest):
        file = copy / manifest["samples"]
        first, *rest = read_samples(file)
        outputs = {**first.outputs, "score": first.outputs["score"] + np.float32(1e-3)}
        write_samples(file, [dataclasses.replace(first, outputs=outputs), *rest])

    shifted = edited(package, tmp_path, shift_scores)
    with pytest.raises(PackageError, match=r"sample 0: output 'score' .*\(tolerance 1e-05\)"):
        limits_of(shifted)
    assert limits_of(shifted, sample_tolerance=1e-2)[0] == 4096
