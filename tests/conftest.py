"""The mark `needs_gpu`: skips where there is no device, fails there under REQUIRE_GPU=1.

And `file_limit`, a stand-in for a full disk.
"""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

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
def file_limit() -> Callable[[int], AbstractContextManager[None]]:
    """In a block of it no file grows beyond so many bytes: EFBIG in its place.

    A block, since the limit is the whole process's: outside it pytest writes its report, perhaps
    to a file that is longer already.
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
