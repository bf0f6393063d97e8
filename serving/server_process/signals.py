"""What signals that say stop do to a server while it loads, and while it drains."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

POLL_SECONDS: Final = 0.1


class EndAtOnce:
    """Ends the process at once by a signal: a server that loads, or that gets a second one.

    A thread of its own waits for the signals, since the main one is at work.

    REQUIRES: the signals are blocked in every thread, and their actions are the system's.
    """

    def __init__(self, signals: set[signal.Signals], say: Callable[[signal.Signals], None]) -> None:
        """
        Args:
            signals: that end the process.
            say: called before the end, by the thread that waits, and must not take long.
        """
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
