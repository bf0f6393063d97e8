"""A pipe whose reader has stopped reading."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIPE_BYTES = 4096


@contextmanager
def small_pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe that holds one page."""
    reading, writing = os.pipe()
    try:
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


def fill(writing: int) -> None:
    """From now on each write to the pipe waits for its reader."""
    # An open file description of its own: O_NONBLOCK of the other would be the server's too.
    own = os.open(f"/proc/self/fd/{writing}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(own, b".")
    finally:
        os.close(own)
