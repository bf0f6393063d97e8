"""The small ranker in the real tritonserver, once for all tests; and MovieLens, trained once."""

import shutil
from pathlib import Path

import pytest
import tritonclient.grpc as triton

from embershard.data import load_movielens, movielens_folder
from embershard.export import export_checkpoint
from embershard.package import Package, add_plan, make_plan, parse_devices
from embershard.serving.triton import TritonOptions, write_model_config
from embershard.training import read_config, train
from tests.serving.triton.running import serving

CONFIG = Path(__file__).parents[3] / "examples/movielens/movielens.toml"


@pytest.fixture(scope="session")
def triton_repository(package, tmp_path_factory) -> Path:
    """Holds `ranker/1`, which our own server serves in the other tests, and its configuration."""
    folder = tmp_path_factory.mktemp("triton")
    shutil.copytree(package, folder / "ranker" / "1")
    options = TritonOptions(threads=1, default_timeout_ms=60_000)
    write_model_config(folder / "ranker" / "1", options)
    return folder


@pytest.fixture(scope="session")
def served(triton_repository):
    with serving(triton_repository, "ranker") as running:
        yield running


@pytest.fixture(scope="session")
def triton_client(served):
    with triton.InferenceServerClient(served.grpc) as connected:
        yield connected


@pytest.fixture(scope="session")
def movielens():
    return load_movielens(movielens_folder(None))


@pytest.fixture(scope="session")
def movielens_package(movielens, tmp_path_factory) -> Path:
    """The demo's model with the plans `default`, `two` (devices) and `torch` (torch's kernels)."""
    config = read_config(CONFIG)
    folder = str(tmp_path_factory.mktemp("checkpoints"))
    checkpoint = config.checkpoint.model_copy(update={"folder": folder})
    trained = train(config.model_copy(update={"checkpoint": checkpoint}), movielens.dataset)
    out = tmp_path_factory.mktemp("movielens") / "movielens" / "1"
    export_checkpoint(trained.checkpoint, out, weights="int8")
    for name, devices in {"two": "2xcpu", "torch": "1xtorch-cpu"}.items():
        plan = make_plan(Package.open(out), parse_devices(devices), name=name, strategy="table")
        add_plan(out, plan)
    return out
