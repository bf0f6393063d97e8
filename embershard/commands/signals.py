"""What signals that say stop do to a command."""

import signal
import threading
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
        self.came: signal.Signals | None = None
        """The last one."""

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

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.came = signal.Signals(number)
        raise KeyboardInterrupt(self.words)

    @property
    def words(self) -> str:
        """What a command says as it ends."""
        if self.came is None or self.came is signal.SIGINT:
            return "interrupted"
        return f"ended by {self.came.name}"

    @property
    def exit_code(self) -> int:
        """As a shell gives it."""
        return 128 + (self.came or signal.SIGINT)
