"""What signals that say stop do to a command."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class StopSignals:
    """In a block of it SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does, so that a
    command removes what it has half done and ends the processes that it has begun. An interrupt
    may end as another error: numpy that is being imported fails otherwise, and so does a wait of
    `threading` that has not its lock again.

    A signal that is ignored stays so: `nohup` ignores SIGHUP. Outside the main thread the block
    changes nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The last one."""

        self._defers_sigterm = False
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
    def sigterm_deferred(self) -> Iterator[Callable[[], bool]]:
        """In the block SIGTERM raises nothing. The function returns true once it was received."""
        self._defers_sigterm = True
        try:
            yield lambda: self.received is signal.SIGTERM
        finally:
            self._defers_sigterm = False

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(number)
        if self._defers_sigterm and number == signal.SIGTERM:
            return
        raise KeyboardInterrupt(self.words)

    @property
    def words(self) -> str:
        """What a command says as it ends."""
        if self.received is None or self.received is signal.SIGINT:
            return "interrupted"
        return f"ended by {self.received.name}"

    @property
    def exit_code(self) -> int:
        """The exit code that a shell would report."""
        return 128 + (self.received or signal.SIGINT)
