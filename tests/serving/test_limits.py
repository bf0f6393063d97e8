"""Limits of the package and of the options, for the size of requests and the exactness of
samples."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from embershard.client import Client
from embershard.errors import PackageError
from embershard.package import read_samples, write_samples
from tests.cases import cases
from tests.serving.models import seal
from tests.serving.serve import serve


def edited(package, folder, edit):
    """A copy of the package, which `edit(copy, manifest)` has changed, in a new repository."""
    copy = folder / "ranker" / "1"
    shutil.copytree(package, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    edit(copy, manifest)
    seal(copy, manifest)
    return folder


def limits_of(repository, **options):
    with (
        serve(repository, **options) as server,
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
        "more-than-the-package": (
            {"max_request_examples": 200_000, "max_queued_examples": 200_000},
            (100_000, 1 << 24),
        ),
        "not-a-batch": ({"max_batch_examples": 10, "max_batch_ids": 7}, (100_000, 1 << 24)),
        "a-short-queue": ({"max_queued_examples": 6000, "max_queued_ids": 88}, (6000, 88)),
    },
)
def test_a_request_may_hold_the_lesser_of_package_and_options(large, options, limits):
    assert limits_of(large, **options) == limits


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
