"""A writer killed at any moment leaves the whole version or none of it."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from embershard.package import verify_package

ROOT = Path(__file__).parent.parent.parent

CHILD = """
import sys
from pathlib import Path
from tests.package.building import publish

print("ready", flush=True)
for version in range(1, 1000):
    publish(Path(sys.argv[1]) / "small" / str(version), chunk_bytes_max=4096)
    print(version, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_leaves_whole_versions_only(tmp_path, seed):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        # Killed somewhere within a version: after one and a random part of another.
        started = time.monotonic()
        assert child.stdout.readline() == "1\n"
        one_version = time.monotonic() - started
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=one_version * random.Random(seed).random())
        child.send_signal(signal.SIGKILL)
        told = [1, *map(int, child.stdout.read().split())]

    visible = sorted(int(each) for each in os.listdir(tmp_path / "small") if each[0] != ".")
    assert visible[: len(told)] == told  # What was said to be there is there.
    assert len(visible) <= len(told) + 1
    for version in visible:
        verify_package(tmp_path / "small" / str(version))
