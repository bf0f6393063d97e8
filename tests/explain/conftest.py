"""The small ranker of tests/serving, exported once."""

from pathlib import Path

import pytest

from tests.serving.models import export_ranker, with_plan
from tests.serving.oracle import Oracle


@pytest.fixture(scope="session")
def package(tmp_path_factory) -> Path:
    """`ranker/1`: int8, with plans for one and two devices."""
    one = export_ranker(tmp_path_factory.mktemp("one-plan"))
    return with_plan(one, tmp_path_factory.mktemp("repository") / "ranker" / "1", devices=2)


@pytest.fixture(scope="session")
def oracle(package) -> Oracle:
    return Oracle(package)
