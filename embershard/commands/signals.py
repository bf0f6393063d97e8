"""Signals that stop a command."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class StopSignals:
    """In a `with` block of it SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does. A
    command then removes what is half done and ends the processes that it has started. An
    interrupt may surface as another error, for example while numpy is imported, or while
    `threading` waits for a lock.

    A signal that is ignored stays so: `nohup` ignores SIGHUP. Outside the main thread the block
    changes nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The last signal that was received."""

        self._defers_stop = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def stop_deferred(self) -> Iterator[Callable[[], bool]]:
        """In the block SIGTERM and the first Ctrl-C raise nothing; a second Ctrl-C does. The
        function returns true once one of both signals was received."""
        self._defers_stop = True
        try:
            yield lambda: self.received in (signal.SIGTERM, signal.SIGINT)
        finally:
            self._defers_stop = False

    def _stop(self, number: int, frame: FrameType | None) -> None:
        before, self.received = self.received, signal.Signals(number)
        is_second = number == before == signal.SIGINT
        if self._defers_stop and number in (signal.SIGTERM, signal.SIGINT) and not is_second:
            return
        raise KeyboardInterrupt(self.words)

    @property
    def words(self) -> str:
        """The message of a command that a signal ended."""
        if self.received is None or self.received is signal.SIGINT:
            return "interrupted"
        return f"ended by {self.received.name}"

    @property
    def exit_code(self) -> int:
        """The exit code that a shell would report."""
        return 128 + (self.received or signal.SIGINT)
