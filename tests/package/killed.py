"""A process that is killed in the middle of its work."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.repository.sources import ROOT


def numbers_before_death(code: str, argument: object, *, seed: int) -> list[int]:
    """What a process printed before it was killed.

    Args:
        code: prints ``ready``, then a number a line, each behind work of its own.
        argument: its ``sys.argv[1]``.
        seed: draws when it is killed: within the work for the second number.
    """
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(argument)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        started = time.monotonic()
        told = [int(child.stdout.readline())]
        one_step = time.monotonic() - started
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=one_step * random.Random(seed).random())
        child.send_signal(signal.SIGKILL)
        return told + [int(line) for line in child.stdout]
