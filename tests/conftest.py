"""The mark `needs_gpu`: skips where there is no device, fails there under REQUIRE_GPU=1.

And `file_limit`, a stand-in for a full disk.
"""

import os
import resource
from collections.abc import Callable, Iterator

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("needs_gpu") is None:
        return
    import torch

    if torch.cuda.is_available():
        return
    if os.environ.get("REQUIRE_GPU") == "1":
        pytest.fail("REQUIRE_GPU=1, but torch sees no CUDA device", pytrace=False)
    pytest.skip("no CUDA device")


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """From its call to the test's end no file grows beyond so many bytes: EFBIG in its place."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
