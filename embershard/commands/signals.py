"""What signals that say stop do to a command."""

import signal
import threading
from types import FrameType
from typing import Any, Self


class StopSignals:
    """In a block of it SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does, so that a
    command removes what it has half done and ends the processes that it has begun.

    A signal that is ignored stays so: `nohup` ignores SIGHUP. Outside the main thread the block
    changes nothing.
    """

    def __init__(self) -> None:
        self.number: signal.Signals = signal.SIGINT
        """What came last."""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.number = signal.Signals(number)
        raise KeyboardInterrupt(f"ended by {self.number.name}")
