"""How many polls are left out after failures."""

from __future__ import annotations

from typing import Final

__all__ = ["Backoff"]

SECONDS_MAX: Final = 60.0
DOUBLINGS_MAX: Final = 16


class Backoff:
    """Polls to leave out, by what has failed: 1 after the first failure, then 3, 7, 15, ...

    At most a minute's; none where polls are rarer than that.
    """

    def __init__(self, interval_seconds: float) -> None:
        """
        Args:
            interval_seconds: between polls.
        """
        self._polls_max = max(1, int(SECONDS_MAX / interval_seconds))
        self._failures: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def is_due(self, name: str) -> bool:
        """Whether this poll tries it. To be called once a poll."""
        left = self._left_out.get(name, 0)
        self._left_out[name] = max(left - 1, 0)
        return left == 0

    def failed(self, name: str) -> None:
        failures = self._failures.get(name, 0) + 1
        self._failures[name] = failures
        self._left_out[name] = min(1 << min(failures, DOUBLINGS_MAX), self._polls_max) - 1

    def succeeded(self, name: str) -> None:
        """The next failure is the first one."""
        self._failures.pop(name, None)
        self._left_out.pop(name, None)
