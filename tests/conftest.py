"""The mark `needs_gpu`: skips where there is no device, fails there under REQUIRE_GPU=1."""

import os

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
