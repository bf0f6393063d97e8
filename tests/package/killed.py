"""Runs a process and kills it in the middle of its work."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.repository.sources import ROOT


def numbers_before_death(code: str, argument: object, *, seed: int) -> list[int]:
    """Numbers that a process printed before it was killed.

    Args:
        code: prints ``ready``, then one number a line, each after some work.
        argument: its ``sys.argv[1]``.
        seed: for the time of the kill, which is during the work for the second number.
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
        numbers = [int(child.stdout.readline())]
        one_step = time.monotonic() - started
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=one_step * random.Random(seed).random())
        child.send_signal(signal.SIGKILL)
        return numbers + [int(line) for line in child.stdout]
