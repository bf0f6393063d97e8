"""SIGTERM ends a server within its drain timeout and two seconds in every state."""

import signal
import time

import pytest

from tests.attack.states import DRAIN_SECONDS, STATES

LATE_SECONDS = 2
GIVE_UP_SECONDS = 60


@pytest.mark.attack
@pytest.mark.timeout(300)
@pytest.mark.parametrize("state", STATES)
def test_sigterm_ends_it_within_drain_timeout_and_two_seconds(state, tmp_path):
    with STATES[state](tmp_path) as server:
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        code = server.process.wait(timeout=GIVE_UP_SECONDS)
        seconds = time.monotonic() - started
    print(
        f"\n{state}: SIGTERM to exit {seconds:.2f} s, exit code {code}, "
        f"at most {DRAIN_SECONDS} + {LATE_SECONDS} s"
    )
    assert seconds <= DRAIN_SECONDS + LATE_SECONDS
