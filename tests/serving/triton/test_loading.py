"""What a configuration may say, and what is wrong with one is said when Triton loads the model."""

import json
import os
import shutil

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

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
    """Of a Triton that serves nothing yet."""
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
    write_model_config(copied, TritonOptions(threads=1, default_timeout_ms=60_000))
    yield copied
    client.unload_model("ranker")
    until(lambda: not is_there(client))  # What it has in memory, the next one would share.
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


@cases(
    "options",
    {
        "defaults": TritonOptions(),
        "two-devices": TritonOptions(plan="2xcpu", threads=2),
        "two-instances": TritonOptions(tables="resident", instances=2),
        "small-batches": TritonOptions(dense_program="cpu", max_batch_examples=4),
        "no-limits": TritonOptions(default_timeout_ms=0, max_queued_requests=0),
    },
)
def test_options_are_taken(client, ranker, local, options):
    write_model_config(ranker, options, force=True)
    load(client)
    assert_it_answers(client, local)


def instances(client):
    """How many Triton has of the ranker."""
    return sum(group.count for group in client.get_model_config("ranker").config.instance_group)


@cases(
    ("options", "expected"),
    {
        "defaults": (TritonOptions(), core_count()),
        "threads": (TritonOptions(threads=2), 1),
        "instances": (TritonOptions(instances=3), 3),
    },
)
def test_triton_starts_one_instance_for_each_core_unless_told_otherwise(
    client, ranker, local, options, expected
):
    write_model_config(ranker, options, force=True)
    load(client)
    assert instances(client) == expected
    assert_it_answers(client, local)


def test_instances_are_counted_on_the_machine_that_triton_runs_on(triton_repository, tmp_path):
    package = shutil.copytree(triton_repository / "ranker" / "1", tmp_path / "ranker" / "1")
    write_model_config(package)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # Of this thread, and so of the server that it starts.
    try:
        with (
            serving(tmp_path, "ranker") as served,
            triton.InferenceServerClient(served.grpc) as client,
        ):
            assert instances(client) == 1
    finally:
        os.sched_setaffinity(0, cores)


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


REFUSED = [
    pytest.param(
        'parameters { key: "plna" value { string_value: "2xcpu" } }',
        "parameter 'plna': expected one of ",
        id="an-unknown-parameter",
    ),
    pytest.param(
        'parameters { key: "threads" value { string_value: "many" } }',
        "parameter 'threads': expected a whole number in 1..1024, got 'many'",
        id="no-number",
    ),
    pytest.param(
        'parameters { key: "tables" value { string_value: "ram" } }',
        "parameter 'tables': expected mmap or resident, got 'ram'",
        id="another-residency",
    ),
    pytest.param(
        'parameters { key: "plan" value { string_value: "9xcpu" } }',
        "9xcpu",
        id="no-such-plan",
    ),
    pytest.param(
        'input [ { name: "colour" data_type: TYPE_FP32 dims: [ 1 ] } ]',
        "config.pbtxt: input 'colour': the package has no such input",
        id="another-models-input",
    ),
    pytest.param(
        "response_cache { enable: true }",
        "config.pbtxt: response_cache: enable: expected false, got true",
        id="a-response-cache",
    ),
    pytest.param(
        "model_transaction_policy { decoupled: true }",
        "config.pbtxt: model_transaction_policy: decoupled: expected false, got true",
        id="decoupled-responses",
    ),
]


@pytest.mark.parametrize(("line", "words"), REFUSED)
def test_a_wrong_configuration_is_refused_and_a_right_one_loads_then(
    client, ranker, local, line, words
):
    config = ranker.parent / "config.pbtxt"
    good = config.read_text()
    config.write_text(good.replace("parameters { key", "# parameters { key") + line + "\n")
    with pytest.raises(InferenceServerException) as caught:
        load(client)
    assert words in caught.value.message()
    config.write_text(good)
    load(client)
    assert_it_answers(client, local)


def test_sequences_are_refused(client, ranker):
    config = ranker.parent / "config.pbtxt"
    config.write_text('backend: "embershard"\nmax_batch_size: 8\nsequence_batching { }\n')
    with pytest.raises(InferenceServerException) as caught:
        load(client)
    assert "config.pbtxt: sequence_batching: expected none" in caught.value.message()


@cases(
    ("there", "other", "words"),
    {
        "an-input": ('"age" data_type: TYPE_FP32 dims: [ 1 ]', "[ 2 ]", "input 'age'"),
        "an-output": ('"score" data_type: TYPE_FP32 dims: [ -1 ]', "[ 7 ]", "output 'score'"),
    },
)
def test_a_tensor_of_another_shape_is_refused(client, ranker, there, other, words):
    config = ranker.parent / "config.pbtxt"
    text = config.read_text()
    assert there in text
    config.write_text(text.replace(there, there.partition("[")[0] + other))
    with pytest.raises(InferenceServerException) as caught:
        load(client)
    assert f"config.pbtxt: {words}: dims: expected [" in caught.value.message()


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
    words = "config.pbtxt: input 'DENSE': dims: expected [-1,2], got [-1,1]; `embershard "
    assert f"{words}triton-config --force {second}` writes the file anew" in caught.value.message()
    assert answer("price") == ("1", [1.5, -2])

    write_model_config(second, force=True)
    client.load_model("sum", client_timeout=WAIT_SECONDS)
    assert answer("price", "stock") == ("2", [3, -4])


def test_a_damaged_package_is_refused(client, ranker):
    chunk = ranker / "tables/items/00000.safetensors"
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(InferenceServerException) as caught:
        load(client)
    assert "tables/items/00000.safetensors: sha256: expected " in caught.value.message()


def test_a_package_of_another_name_is_refused(client, ranker, loading_repository):
    other = shutil.copytree(ranker.parent, loading_repository / "other")
    (other / "config.pbtxt").write_text('backend: "embershard"\n')
    with pytest.raises(InferenceServerException) as caught:
        client.load_model("other", client_timeout=WAIT_SECONDS)
    words = "manifest.json: model: expected other (its folder), got ranker"
    assert words in caught.value.message()


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
