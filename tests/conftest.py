"""Marks of tests that need something, and shared fixtures.

A test is skipped if what its mark needs is missing. It fails instead if the variable is set.

`needs_gpu` and REQUIRE_GPU=1: a CUDA device. `needs_browser` and REQUIRE_BROWSER=1: Chromium.
`needs_triton` and REQUIRE_TRITON=1: tritonserver.
`needs_proxy` and REQUIRE_PROXY=1: HAProxy. `needs_promtool` and REQUIRE_PROMTOOL=1: promtool.
`needs_runtime` and REQUIRE_RUNTIME=1: the contents of the serving image, in build/serving.
`needs_peers` and REQUIRE_PEERS=1: TorchRec in .venv-peers.
"""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings

from benchmarks.checkout import PEER_PYTHON
from benchmarks.tritonserver import find_tritonserver
from tests.attack.proxy import is_installed as proxy_installed
from tests.serving.metrics.browser import is_installed as browser_installed

# Without a deadline, since an example may take long on a busy machine.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

RUNTIME = Path(__file__).resolve().parents[1] / "build" / "serving" / "bin" / "embershard"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Moves files with slow tests to the front, so that no process ends long after the others."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_gpu"):
        _need("REQUIRE_GPU", _sees_gpu, "torch sees no CUDA device")
    if item.get_closest_marker("needs_browser"):
        _need("REQUIRE_BROWSER", browser_installed, "no chromium and chromedriver are installed")
    if item.get_closest_marker("needs_triton"):
        words = "no tritonserver is installed: `scripts/install.sh triton` installs one"
        _need("REQUIRE_TRITON", lambda: find_tritonserver() is not None, words)
    if item.get_closest_marker("needs_proxy"):
        words = "no haproxy is installed: `scripts/install.sh proxy` installs it"
        _need("REQUIRE_PROXY", proxy_installed, words)
    if item.get_closest_marker("needs_promtool"):
        words = "no promtool is installed: `scripts/install.sh proxy` installs it"
        _need("REQUIRE_PROMTOOL", lambda: shutil.which("promtool") is not None, words)
    if item.get_closest_marker("needs_peers"):
        words = "no TorchRec is installed in .venv-peers: `scripts/bench_peers.sh` installs it"
        _need("REQUIRE_PEERS", PEER_PYTHON.exists, words)
    if item.get_closest_marker("needs_runtime"):
        _need(
            "REQUIRE_RUNTIME",
            RUNTIME.exists,
            f"scripts/runtime.sh build serving has not made {RUNTIME}",
        )


def _need(variable: str, met: Callable[[], bool], words: str) -> None:
    if met():
        return
    if os.environ.get(variable) == "1":
        pytest.fail(f"{variable}=1, but {words}", pytrace=False)
    pytest.skip(words)


def _sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with `ranker/1`: int8 tables, and plans for one and two devices."""
    from tests.serving.models import export_ranker, with_plan

    folder = tmp_path_factory.mktemp("repository")
    package = export_ranker(tmp_path_factory.mktemp("one-plan"))
    with_plan(package, folder / "ranker" / "1", devices=2)
    return folder


@pytest.fixture(scope="session")
def package(repository: Path) -> Path:
    return repository / "ranker" / "1"


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with versions 1 and 2 of a ranker, whose scores tell them apart."""
    from tests.serving.versions import publish

    folder = tmp_path_factory.mktemp("published")
    for version in (1, 2):
        publish(folder, version)
    return folder


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Four ranks, in processes that run test cases."""
    from tests.sharding.workers import Workers

    started = Workers(tmp_path_factory.mktemp("workers"))
    yield started
    started.stop()


@pytest.fixture
def file_limit() -> Callable[[int], AbstractContextManager[None]]:
    """A context manager that stands for a full disk: files cannot grow beyond a number of bytes.

    Writes fail with EFBIG. The limit is for the process, so it must end with the block: pytest may
    write its report to a file that is longer already.
    """

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited
