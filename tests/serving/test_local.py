"""Requests as arrays, in process."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from embershard.errors import InputError, NotFoundError, PackageError, RequestError
from embershard.package import Package
from embershard.serving import LocalPredictor
from tests.cases import cases, refused
from tests.serving.processor import processor_flags

# Layers of 24 and 16 inputs, whose sums torch may round in another order at another place, and
# outputs below 1.
ROUNDINGS = (24 + 16) * 2.0**-23

INSTRUCTIONS = processor_flags()
HAS_OWN_LAYERS = {"avx2", "fma"} <= INSTRUCTIONS and (
    "avx512f" not in INSTRUCTIONS or os.environ.get("EMBERSHARD_ISA") == "avx2"
)


@pytest.fixture(scope="module")
def samples(package):
    return Package.open(package).samples()


def test_samples_score_as_the_package_says(local, samples):
    for sample, answer in zip(samples, local.predict_merged(samples), strict=True):
        assert set(answer.outputs) == set(sample.outputs)
        for name, expected in sample.outputs.items():
            assert answer.outputs[name].shape == expected.shape
            np.testing.assert_allclose(answer.outputs[name], expected, atol=1e-6)


def test_arrays_may_have_any_strides_and_lie_in_torch(local, samples):
    sample = samples[-1]
    strided = replace(
        sample,
        example_dense=np.asfortranarray(sample.example_dense),
        values=np.repeat(sample.values, 2)[::2],
        lengths=torch.from_numpy(sample.lengths.copy()).numpy(),
    )
    [expected], [answer] = local.predict_merged([sample]), local.predict_merged([strided])
    for name, values in expected.outputs.items():
        assert answer.outputs[name].tobytes() == values.tobytes()


@cases(
    ("make", "words"),
    {
        "no-list": (lambda sample: sample, "requests: expected a list .*, got SampleRequest"),
        "mapping": (lambda _: [{}], "requests: 0: expected a SampleRequest, .*, got dict"),
    },
)
def test_what_is_no_list_of_requests_is_refused(local, samples, make, words):
    with pytest.raises(InputError, match=words):
        local.predict_merged(make(samples[0]))


def test_an_output_that_is_no_list_of_names_is_refused(local, samples):
    with refused(InputError, "outputs: expected a list of names", "'score'"):
        local.predict_merged(samples[:1], outputs="score")


def test_a_folder_of_versions_is_refused_by_its_path(package):
    with pytest.raises(PackageError) as raised:
        LocalPredictor(package.parent)
    assert str(raised.value) == (
        f"{package.parent}: expected the folder of one version, <repository>/<model>/<version>, "
        "got no manifest.sha256 in it"
    )


@cases(
    ("field", "shorten", "words"),
    {
        "request_dense": ("request_dense", lambda a: a[:-1], "request_dense: expected "),
        "example_dense": ("example_dense", lambda a: a[:, :-1], "example_dense: expected "),
        "lengths": ("lengths", lambda a: a[:-1], "lengths: expected "),
        "values": ("values", lambda a: a[:-1], "values: expected "),
        "weights": ("weights", lambda a: np.append(a, np.float32(1)), "weights: expected "),
    },
)
def test_only_the_array_of_another_size_is_refused(local, samples, field, shorten, words):
    good = samples[-1]
    bad = replace(good, **{field: shorten(getattr(good, field))})
    before, error, after = local.predict_merged([good, bad, good])
    assert type(error) is RequestError
    assert str(error).startswith(words)
    for name, values in before.outputs.items():
        np.testing.assert_allclose(after.outputs[name], values, rtol=0, atol=ROUNDINGS)


@pytest.mark.skipif(not HAS_OWN_LAYERS, reason="tests/serving/test_avx2.py runs it")
def test_layers_give_a_row_the_same_bits_in_any_place(local):
    row = local.request(
        dense={"age": 0.3, "price": 0.7}, sparse={"item": [100], "category": [[1, 2]]}
    )
    (alone,) = local.predict_merged([row])
    for count in range(2, 34):
        for answer in local.predict_merged([row] * count):
            for name in ("parts", "user_vector"):  # The sigmoid of `score` is torch's.
                assert answer.outputs[name].tobytes() == alone.outputs[name].tobytes()


def test_an_unknown_output_is_not_found(local, samples):
    with pytest.raises(NotFoundError, match="'clicks'"):
        local.predict_merged(samples[:1], ["clicks"])


def test_a_request_is_made_of_the_arguments_of_a_client(local):
    request = local.request(
        dense={"likes": [1.0, 2.0], "age": 3.0, "price": [4.0, 5.0]},
        sparse={"category": [[1, 2], []], "tags": [[3], [4, 5]]},
        weights={"tags": [[0.5], [1.0, 2.0]]},
    )
    assert request.num_examples == 2
    assert request.request_dense.tolist() == [3.0, 0.5]  # The default of "hour".
    assert request.example_dense.tolist() == [[4.0, 1.0], [5.0, 2.0]]
    assert request.lengths.tolist() == [0, 0, 0, 0, 0, 2, 0, 1, 2, 0]
    assert request.values.tolist() == [1, 2, 3, 4, 5]
    assert request.weights.tolist() == [0.5, 1.0, 2.0]
    with pytest.raises(RequestError, match="feature 'colour': not a sparse input"):
        local.request(sparse={"colour": [1]})


def batch_workers() -> set[str]:
    result = set()
    for path in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # One may have ended.
            if (path / "comm").read_text() == "batch-worker\n":
                result.add(path.name)
    return result


def test_no_worker_threads_of_a_request_queue_are_started(package):
    before = batch_workers()
    local = LocalPredictor(package, threads=2, slots=2)
    assert batch_workers() <= before
    assert local.get_model()  # It is still there.
