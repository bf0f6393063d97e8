"""Signals that stop a command."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class StopSignals:
    """In its ``with`` block, SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does.

    A command can then remove unfinished files and end child processes. The exception may surface
    as another error, for example during the import of numpy or while `threading` waits for a lock.
    Ignored signals remain ignored. The block has no effect outside the main thread.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

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
        """In the block, SIGTERM and the first Ctrl-C raise nothing, but a second Ctrl-C does. The
        yielded function returns True after one of these signals was received."""
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
        """Message for the end of a command by a signal."""
        if self.received is None or self.received is signal.SIGINT:
            return "interrupted"
        return f"ended by {self.received.name}"

    @property
    def exit_code(self) -> int:
        """The exit code that a shell would report."""
        return 128 + (self.received or signal.SIGINT)
