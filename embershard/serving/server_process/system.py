"""Process-wide settings of a server: limits, malloc, standard streams and stop signals."""

import logging
import os
import resource
import signal
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from embershard.malloc_options import set_malloc_options
from embershard.serving._native import load_extension
from embershard.serving.server_process.logs import DescriptorStream

LOG = logging.getLogger(__name__)


def core_count() -> int:
    """Cores that this process may use, limited by the CPU quota of its cgroups (v1 and v2). It is
    the meaning of ``threads=0``."""
    return int(load_extension().core_count())


def prepare_process() -> None:
    """Prepare the process of ``embershard serve``. The library alone changes none of this.

    * The limit of open files is raised to the hard limit (``ulimit -Hn``), because every connection
      needs a file.
    * malloc keeps memory for the next batch, because the system takes long to clear pages.
      ``MALLOC_TRIM_THRESHOLD_`` and ``MALLOC_MMAP_THRESHOLD_`` take precedence.
    * Each thread has its own malloc arena, so that it never waits for a thread that loads.
      ``MALLOC_ARENA_MAX`` takes precedence.
    * If a mapped table is truncated, SIGBUS ends the process. A message then explains it.
    * Libraries that write to standard error do not wait for its reader.
    """
    stop_waiting_for_reader(sys.stderr.fileno())
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    set_malloc_options(os.environ)
    load_extension().explain_bus_errors()


def stop_waiting_for_reader(descriptor: int) -> None:
    """Make writes to a pipe or terminal fail instead of waiting for a reader that does not read.

    Other processes that write to it are not affected. Sockets and files are left as they are.
    Needed because gRPC, torch and glibc write to standard error on threads that answer requests.
    """
    if not (stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor)):
        return
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        # Opened again, because O_NONBLOCK applies to all processes that share a descriptor.
        own = os.open(f"/proc/self/fd/{descriptor}", flags)
    except OSError:  # It belongs to another user, or has no reader any more.
        return
    os.dup2(own, descriptor)
    os.close(own)


OUTPUT: Final = 1
ERROR: Final = 2


def open_closed_streams() -> None:
    """Open /dev/null for closed standard streams. Otherwise the next socket would get the
    number, and clients would receive what libraries write to it."""
    for descriptor in (0, OUTPUT, ERROR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Gets the lowest free number, this one.
    if sys.stderr is None:
        sys.stderr = os.fdopen(ERROR, "w", closefd=False)


def write_aside(text: str) -> None:
    """Write to standard output on a thread, which waits for the reader. If that fails, as on a full
    disk, standard output becomes /dev/null."""

    def write() -> None:
        try:
            DescriptorStream(OUTPUT).write(text.encode())
        except OSError as error:
            if not isinstance(error, BrokenPipeError):  # The reader may close its end.
                LOG.warning("standard output: %s; the log has what it would say", error.strerror)
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, OUTPUT)  # Otherwise a flush at the end of the process would fail too.
            os.close(null)

    threading.Thread(target=write, name="embershard-stdout", daemon=True).start()


POLL_SECONDS: Final = 0.1


class SignalExit:
    """Ends the process immediately on a signal, while it loads or after a second signal.

    A separate thread waits, because the main thread is busy. REQUIRES: the signals are blocked in
    every thread and have their default actions.
    """

    def __init__(
        self, signals: set[signal.Signals], report: Callable[[signal.Signals], None]
    ) -> None:
        """The thread calls ``report``, which must be fast, before the process ends."""
        self._signals, self._report = signals, report
        self._over = threading.Event()
        threading.Thread(target=self._wait, name="early-signals", daemon=True).start()

    def stop(self) -> None:
        """Leave later signals to the next caller that waits for them."""
        self._over.set()

    def _wait(self) -> None:
        while not self._over.is_set():
            received = signal.sigtimedwait(self._signals, POLL_SECONDS)
            if received is None:
                continue
            if self._over.is_set():  # The signal is for the next waiter.
                os.kill(os.getpid(), received.si_signo)
                return
            self._report(signal.Signals(received.si_signo))
            raise_idle_threads()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {received.si_signo})
            signal.raise_signal(received.si_signo)
            os._exit(128 + received.si_signo)  # The signal does not end a container's process 1.


def raise_idle_threads() -> None:
    """Give threads with idle scheduling priority the normal priority, if the system allows it.

    The process ends only after each thread has run once more, which took seconds on a busy machine.
    """
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(OSError):  # The thread has ended, or CAP_SYS_NICE is needed.
            if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
