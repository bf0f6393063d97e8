"""Version changes while a server is under load."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.checkout import Checkout, Command
from benchmarks.harness import Session
from benchmarks.processes import Running, child_lines, request_line


@dataclass(frozen=True, slots=True)
class Swaps:
    """Versions 1 and 2 of a model become the default in turn."""

    period_seconds: float
    """From the begin of one swap to the begin of the next. 0: without a pause."""

    def start(self, session: Session, checkout: Checkout, running: Running) -> Swapper:
        """A process that swaps versions of a `ServeModels` when it is told to."""
        assert running.folder is not None
        arguments = (running.folder, self.period_seconds)
        command = checkout.module("benchmarks.workers.swaps", *arguments)
        return Swapper(command, session.enter(child_lines(command)))


class Swapper:
    """The process, which swaps while this context is entered."""

    def __init__(self, command: Command, process: subprocess.Popen[str]) -> None:
        self._command, self._process = command, process
        self._figures: dict[str, float] = {}

    @contextmanager
    def swapping(self) -> Iterator[None]:
        """Swaps from the beginning to the end of the context."""
        request_line(self._command, self._process, "begin")
        try:
            yield
        finally:
            self._figures = json.loads(request_line(self._command, self._process, "end"))

    def figures(self) -> dict[str, float]:
        """``swaps`` and ``swap_ms`` of the last context."""
        return self._figures
