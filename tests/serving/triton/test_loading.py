"""Valid configurations load, and Triton reports the errors of others when it loads the model."""

import json
import shutil

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from embershard.package import Package, add_plan, make_plan
from embershard.serving.server_process.system import core_count
from embershard.serving.triton import TritonOptions, write_model_config
from tests.cases import cases
from tests.serving.asking import named, random_request
from tests.serving.asking import outputs_of as our_outputs_of
from tests.serving.failures.busy import until
from tests.serving.models import seal
from tests.serving.open_inference.tensors import infer_inputs
from tests.serving.triton.asking import inputs_of, outputs_of
from tests.serving.triton.running import serving
from tests.serving.triton.sums import export_sum

pytestmark = pytest.mark.needs_triton

WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def loading_repository(tmp_path_factory):
    return tmp_path_factory.mktemp("loading")


@pytest.fixture(scope="module")
def client(loading_repository):
    """A client of a Triton that serves no model yet."""
    with (
        serving(loading_repository) as served,
        triton.InferenceServerClient(served.grpc) as connected,
    ):
        yield connected
        assert served.process.poll() is None, "".join(served.log)


@pytest.fixture
def ranker(package, loading_repository, client):
    """The package as version 1 of `ranker`, with its configuration; gone afterwards."""
    copied = shutil.copytree(package, loading_repository / "ranker" / "1")
    plan = make_plan(Package.open(copied), ["torch-cpu:0"], name="1xtorch-cpu", strategy="table")
    add_plan(copied, plan)
    write_model_config(copied, TritonOptions(threads=1, default_timeout_ms=60_000))
    yield copied
    client.unload_model("ranker")
    until(lambda: not is_there(client))  # The next model would share its memory.
    shutil.rmtree(loading_repository / "ranker")


def is_there(client):
    states = {model.state for model in client.get_model_repository_index().models}
    return bool(states - {"UNAVAILABLE", ""})


def load(client):
    client.load_model("ranker", client_timeout=WAIT_SECONDS)


def assert_it_answers(client, local):
    request = random_request(6)
    expected = our_outputs_of(local.answers([named(request).SerializeToString()])[0])
    got = outputs_of(client.infer("ranker", inputs_of(request), client_timeout=WAIT_SECONDS))
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=0, atol=1e-6, strict=True)


def instances(client):
    """The number of instances of the ranker."""
    return sum(group.count for group in client.get_model_config("ranker").config.instance_group)


@cases(
    ("options", "expected"),
    {
        "defaults": (TritonOptions(), core_count()),
        "two-devices": (TritonOptions(plan="2xcpu", threads=2), 1),
        "torchs-kernels": (TritonOptions(plan="1xtorch-cpu", threads=1), 1),
        "three-instances": (TritonOptions(tables="resident", instances=3), 3),
        "small-batches": (
            TritonOptions(
                dense_program="cpu",
                threads=1,
                max_batch_examples=4,
                default_timeout_ms=0,
                max_queued_requests=0,
            ),
            1,
        ),
    },
)
def test_each_option_loads_a_model_that_answers(client, ranker, local, options, expected):
    write_model_config(ranker, options, force=True)
    load(client)
    assert instances(client) == expected
    assert_it_answers(client, local)


def test_instances_added_by_a_reload_share_the_slots(client, ranker, local):
    write_model_config(ranker, TritonOptions(instances=1), force=True)
    load(client)
    write_model_config(ranker, TritonOptions(instances=3), force=True)
    load(client)
    assert instances(client) == 3
    assert_it_answers(client, local)


@cases("batching", {"unstated": "", "without-a-size": "dynamic_batching { }\n"})
def test_the_backend_alone_is_a_whole_configuration(client, ranker, local, batching):
    (ranker.parent / "config.pbtxt").write_text('backend: "embershard"\n' + batching)
    load(client)
    assert client.get_model_config("ranker").config.max_batch_size == 256
    assert_it_answers(client, local)


def test_a_right_configuration_loads_after_a_wrong_one(client, ranker, local):
    config = ranker.parent / "config.pbtxt"
    good = config.read_text()
    wrong = 'parameters { key: "plna" value { string_value: "2xcpu" } }\n'
    config.write_text(good.replace("parameters { key", "# parameters { key") + wrong)
    with pytest.raises(InferenceServerException) as caught:
        load(client)
    assert "parameter 'plna': expected one of " in caught.value.message()
    config.write_text(good)
    load(client)
    assert_it_answers(client, local)


@pytest.fixture
def growing(client, loading_repository):
    """Exports versions of the model `sum` that have these dense inputs."""
    yield lambda version, *names: export_sum(loading_repository / "sum" / str(version), *names)
    client.unload_model("sum")
    until(lambda: not is_there(client))
    shutil.rmtree(loading_repository / "sum")


def test_a_version_with_another_input_needs_a_new_configuration(client, growing):
    def answer(*names):
        arrays = {name: np.array([[1.5, -2]], np.float32) for name in names}
        value = client.infer("sum", infer_inputs(arrays), client_timeout=WAIT_SECONDS)
        return value.get_response().model_version, outputs_of(value)["score"].tolist()

    write_model_config(growing(1, "price"))
    client.load_model("sum", client_timeout=WAIT_SECONDS)
    assert answer("price") == ("1", [1.5, -2])

    second = growing(2, "price", "stock")
    with pytest.raises(InferenceServerException) as caught:
        client.load_model("sum", client_timeout=WAIT_SECONDS)
    words = "config.pbtxt: input 'DENSE': dims: expected [-1,2], got [-1,1]; "
    advice = f"to write config.pbtxt anew, run `embershard triton-config --force {second}`"
    assert words + advice in caught.value.message()
    assert answer("price") == ("1", [1.5, -2])

    write_model_config(second, force=True)
    client.load_model("sum", client_timeout=WAIT_SECONDS)
    assert answer("price", "stock") == ("2", [3, -4])


def test_a_new_version_takes_over(client, ranker, local):
    load(client)
    second = shutil.copytree(ranker, ranker.parent / "2")
    retell(second, 2)
    client.load_model("ranker", client_timeout=WAIT_SECONDS)
    answer = client.infer("ranker", inputs_of(random_request(3)), client_timeout=WAIT_SECONDS)
    assert answer.get_response().model_version == "2"


def retell(package, version):
    """Gives a copy of a package another version."""
    manifest = json.loads((package / "manifest.json").read_text())
    seal(package, manifest | {"version": version})
