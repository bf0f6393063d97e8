"""Load and unload by Triton's own client, unmodified, over a repository that changes."""

import subprocess
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from embershard.errors import ConfigError
from embershard.package.labels import write_label
from embershard.serving import Server, ServerOptions
from tests.cli.running import serving
from tests.serving.open_inference.tensors import infer_inputs
from tests.serving.versions import STEP

OPTIONS = {"port": 0, "threads": 1, "default_timeout_ms": 60_000}
TAKEN = ServerOptions(**OPTIONS, model_control=True)
TOKEN = "one-token-of-a-test_0123456789"
CALLERS = 8


@pytest.fixture
def repository(published, tmp_path):
    """Version 1, in a copy that a test may change."""
    folder = tmp_path / "repository"
    folder.mkdir()
    copy(published, folder, 1)
    return folder


def copy(published, repository, version):
    folder = repository / "ranker" / str(version)
    folder.parent.mkdir(exist_ok=True)
    subprocess.run(["cp", "-r", str(published / "ranker" / str(version)), str(folder)], check=True)
    return folder


def infer(client, **how):
    """Which version answered, by what it says and by its score."""
    arrays = {
        "price": np.array([5.0], np.float32),
        "item.values": np.array([3], np.int64),
        "item.lengths": np.array([1], np.int32),
    }
    result = client.infer("ranker", infer_inputs(arrays), **how)
    version = int(result.get_response().model_version)
    assert round(float(result.as_numpy("score")[0]) / STEP) == version
    return version


def index(client, **how):
    return {
        model.version: (model.state, model.reason)
        for model in client.get_model_repository_index(**how).models
    }


def refused(call, *arguments, **named):
    with pytest.raises(InferenceServerException) as caught:
        call(*arguments, **named)
    return caught.value.status().removeprefix("StatusCode."), caught.value.message()


READY = ("READY", "")
NOT_LOADED = ("UNAVAILABLE", "not loaded")


def test_a_version_that_has_come_is_loaded_and_answers(published, repository):
    with Server(repository, options=TAKEN) as server, client_of(server) as client:
        assert infer(client) == 1
        copy(published, repository, 2)
        assert index(client) == {"1": READY, "2": NOT_LOADED}
        client.load_model("ranker")
        assert index(client) == {"1": NOT_LOADED, "2": READY}
        assert infer(client) == 2
        write_label(repository, "ranker", "stable", 1)
        client.load_model("ranker")
        assert infer(client) == 1


def client_of(server):
    return triton.InferenceServerClient(server.address)


def test_the_last_model_is_unloaded_and_comes_back(repository):
    with Server(repository, options=TAKEN) as server, client_of(server) as client:
        client.unload_model("ranker", unload_dependents=True)
        assert client.is_server_live()
        assert not client.is_server_ready()
        assert not client.is_model_ready("ranker")
        assert index(client) == {"1": NOT_LOADED}
        assert refused(infer, client) == ("NOT_FOUND", "no model is served here now")
        words = "model 'ranker' is not served here"
        assert refused(client.unload_model, "ranker") == ("NOT_FOUND", words)
        words = "model 'nope' is not in the repository"
        assert refused(client.load_model, "nope") == ("NOT_FOUND", words)
        assert server.metrics().total("embershard_load_failures") == 0
        client.load_model("ranker")
        assert client.is_server_ready()
        assert infer(client) == 1


def test_concurrent_loads_are_all_done_while_requests_run(published, repository):
    failed = []

    def load(server):
        try:
            with client_of(server) as client:
                client.load_model("ranker")
                assert infer(client) == 2
        except Exception as error:
            failed.append(error)

    with Server(repository, options=TAKEN) as server, client_of(server) as client:
        copy(published, repository, 2)
        callers = [threading.Thread(target=load, args=(server,)) for _ in range(CALLERS)]
        for caller in callers:
            caller.start()
        while any(item.is_alive() for item in callers):
            assert infer(client) in (1, 2)
        assert infer(client) == 2
    assert failed == []


def test_orders_open_to_a_whole_network_are_refused_at_start(repository, tmp_path):
    options = {**OPTIONS, "host": "0.0.0.0", "model_control": True}
    with pytest.raises(ConfigError):
        Server(repository, options=ServerOptions(**options))
    token = tmp_path / "token"
    token.write_text(TOKEN)
    guarded = ServerOptions(**options, token_file=str(token), token_without_tls=True)
    with Server(repository, options=guarded) as server:
        assert server.state == "serving"


def test_the_command_has_a_flag_for_it(repository):
    with (
        serving(
            repository, "--threads", 1, "--default-timeout-ms", 60_000, "--model-control"
        ) as server,
        triton.InferenceServerClient(server.address) as client,
    ):
        client.unload_model("ranker")
        client.load_model("ranker")
        assert infer(client) == 1
