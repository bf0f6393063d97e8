"""What a process that does nothing but serve sets for itself, its standard streams included."""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from embershard.serving._native import load_extension
from embershard.serving.server_process.logs import DescriptorStream

INT_MAX: Final = (1 << 31) - 1
MALLOC_OPTIONS: Final = {
    -1: "MALLOC_TRIM_THRESHOLD_",
    -3: "MALLOC_MMAP_THRESHOLD_",
    -8: "MALLOC_ARENA_MAX",
}
"""Parameters of ``mallopt``, each with the variable by which glibc takes it."""


def core_count() -> int:
    """How many threads have a core each: of the cores that this process may run on, no more than
    its cgroups (versions 1 and 2) grant CPU time for. What ``threads=0`` means."""
    return int(load_extension().core_count())


def prepare_process() -> None:
    """For the process of ``embershard serve``; a library changes nothing of the sort.

    * Each connection is a file, and who lacks files cannot take connections: as many files may be
      open as the system allows this process at most (``ulimit -Hn``).
    * malloc keeps memory for the next batch, since the system takes long to clear pages
      (``MALLOC_TRIM_THRESHOLD_`` and ``MALLOC_MMAP_THRESHOLD_`` are heeded).
    * Each thread has its own malloc arena, so that none waits for one that loads
      (``MALLOC_ARENA_MAX`` is heeded).
    * A table that is cut short while it is mapped ends the process by SIGBUS: not without a word.
    * What libraries write to standard error themselves waits for no reader.
    """
    stop_waiting_for_reader(sys.stderr.fileno())
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    set_malloc_options(os.environ)
    load_extension().explain_bus_errors()


def set_malloc_options(environment: Mapping[str, str]) -> None:
    """Has glibc's malloc keep memory for the next batch, since the system clears every page
    again, and give each new thread an arena of its own: by default threads beyond eight for each
    core share one, with a lock that a thread of idle priority may hold for milliseconds.

    What the environment says holds as said. Does nothing with another C library. To be called
    before many threads have allocated, since glibc looks at its limit of arenas once.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, name in MALLOC_OPTIONS.items():
        if mallopt is not None and name not in environment:
            mallopt(parameter, INT_MAX)


def stop_waiting_for_reader(descriptor: int) -> None:
    """Has writes to a pipe or terminal fail while its reader does not read, and not wait. For other
    processes that write to it nothing changes. Of a socket or a file nothing does.

    gRPC, torch and glibc write to standard error on threads that answer requests.
    """
    if not (stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor)):
        return
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        # Opened anew: O_NONBLOCK of a descriptor holds for all processes that share it.
        own = os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # Another user's, or nobody reads any more.
        return
    os.dup2(own, descriptor)
    os.close(own)


OUTPUT: Final = 1
ERROR: Final = 2


def open_closed_streams() -> None:
    """Opens /dev/null for each standard stream that is closed: else the next socket would have its
    number, and clients would get what libraries write to it."""
    for descriptor in (0, OUTPUT, ERROR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number.
    if sys.stderr is None:
        sys.stderr = os.fdopen(ERROR, "w", closefd=False)


def write_aside(text: str) -> None:
    """Writes to standard output on a thread of its own, which waits for the reader."""

    def write() -> None:
        with suppress(OSError):  # The reader closed the pipe. The log has the same line.
            DescriptorStream(OUTPUT).write(text.encode())

    threading.Thread(target=write, name="embershard-stdout", daemon=True).start()
