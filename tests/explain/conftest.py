"""The oracle of the small ranker."""

import pytest

from tests.serving.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(package) -> Oracle:
    return Oracle(package)
