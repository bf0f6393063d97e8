"""A writer that is killed at any moment leaves the complete version or none of it."""

import os

import pytest

from embershard.package import verify_package
from tests.package.killed import numbers_before_death

CHILD = """
import sys
from pathlib import Path
from tests.package.building import publish

print("ready", flush=True)
for version in range(1, 1000):
    publish(Path(sys.argv[1]) / "small" / str(version), chunk_bytes_max=4096)
    print(version, flush=True)
"""


@pytest.mark.parametrize("seed", range(20))
def test_a_killed_writer_leaves_whole_versions_only(tmp_path, seed):
    printed = numbers_before_death(CHILD, tmp_path, seed=seed)
    visible = sorted(int(item) for item in os.listdir(tmp_path / "small") if item[0] != ".")
    assert visible[: len(printed)] == printed  # Published versions are there.
    assert len(visible) <= len(printed) + 1
    for version in visible:
        verify_package(tmp_path / "small" / str(version))
