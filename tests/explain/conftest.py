"""The small ranker, and what its package says by its own arithmetic."""

import pytest

from tests.serving.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(package) -> Oracle:
    return Oracle(package)
