"""The small ranker in the real tritonserver, started once for all tests."""

import shutil
from pathlib import Path

import pytest
import tritonclient.grpc as triton

from embershard.serving.triton import TritonOptions, write_model_config
from tests.serving.triton.running import serving


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
