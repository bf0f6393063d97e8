"""What a process that does nothing but serve sets for itself."""

from __future__ import annotations

import os
import resource
import stat
import sys

from embershard.serving._native import load_extension

__all__ = ["core_count", "prepare_process", "stop_waiting_for_reader"]


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
    extension = load_extension()
    extension.keep_freed_memory()
    extension.give_threads_own_memory()
    extension.explain_bus_errors()


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
