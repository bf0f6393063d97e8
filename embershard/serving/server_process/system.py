"""What a process that does nothing but serve sets for itself, its standard streams and what signals
that say stop do included."""

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
    """Writes to standard output on a thread of its own, which waits for the reader. If that fails,
    as on a full disk, standard output is /dev/null from then on."""

    def write() -> None:
        try:
            DescriptorStream(OUTPUT).write(text.encode())
        except OSError as error:
            if not isinstance(error, BrokenPipeError):  # A reader may leave.
                LOG.warning("standard output: %s; the log has what it would say", error.strerror)
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, OUTPUT)  # A flush at the end of the process would fail, too.
            os.close(null)

    threading.Thread(target=write, name="embershard-stdout", daemon=True).start()


POLL_SECONDS: Final = 0.1


class EndAtOnce:
    """Ends the process at once by a signal: a server that loads, or that gets a second one.

    A thread of its own waits for the signals, since the main one is at work.

    REQUIRES: the signals are blocked in every thread, and their actions are the system's.
    """

    def __init__(self, signals: set[signal.Signals], say: Callable[[signal.Signals], None]) -> None:
        """``signals`` end the process. ``say`` is called before the end, by the thread that waits,
        and must not take long."""
        self._signals, self._say = signals, say
        self._over = threading.Event()
        threading.Thread(target=self._wait, name="early-signals", daemon=True).start()

    def stop(self) -> None:
        """From here on a signal is for the next who waits for it."""
        self._over.set()

    def _wait(self) -> None:
        while not self._over.is_set():
            taken = signal.sigtimedwait(self._signals, POLL_SECONDS)
            if taken is None:
                continue
            if self._over.is_set():  # It came for the next.
                os.kill(os.getpid(), taken.si_signo)
                return
            self._say(signal.Signals(taken.si_signo))
            raise_idle_threads()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {taken.si_signo})
            signal.raise_signal(taken.si_signo)
            os._exit(128 + taken.si_signo)  # The first process of a container does not end by it.


def raise_idle_threads() -> None:
    """Has threads of idle scheduling priority get a processor as others do, as far as the system
    lets this process: it ends only when each of its threads has run once more, which took seconds
    on a busy machine."""
    for thread in map(int, os.listdir("/proc/self/task")):
        with suppress(OSError):  # It has ended, or takes CAP_SYS_NICE.
            if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
