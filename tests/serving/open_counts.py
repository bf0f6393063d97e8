"""Counts how often a file is opened, by this process and others, with Linux's inotify."""

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

IN_OPEN = 0x20
IN_CLOSE_NOWRITE = 0x10  # Between two opens, which inotify would report as one otherwise.
HEADER = struct.Struct("iIII")
"""Watch, events, cookie, bytes of the name that follows."""


@contextmanager
def open_counts(file: Path) -> Iterator[Callable[[], int]]:
    """Yields a function that returns the number of opens since the last call."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert descriptor >= 0, os.strerror(ctypes.get_errno())
    try:
        watch = libc.inotify_add_watch(descriptor, bytes(file), IN_OPEN | IN_CLOSE_NOWRITE)
        assert watch >= 0, os.strerror(ctypes.get_errno())
        yield lambda: _opens(descriptor)
    finally:
        os.close(descriptor)


def _opens(descriptor: int) -> int:
    opens = 0
    while events := _read(descriptor):
        while events:
            _, event, _, name_bytes = HEADER.unpack_from(events)
            events = events[HEADER.size + name_bytes :]
            opens += bool(event & IN_OPEN)
    return opens


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return b""
