"""Other threads of Python run while the extension ends a server."""

import sys
import threading
import time

import pytest

from embershard.serving import LocalPredictor
from tests.cases import cases
from tests.serving.serve import serve


@pytest.fixture
def no_forced_switches():
    """A thread keeps the interpreter's lock until it releases it itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@cases(
    "start",
    {
        "server": lambda repository: serve(repository),
        "local": lambda repository: LocalPredictor(repository / "ranker" / "1", threads=1),
    },
)
def test_a_server_ends_without_the_lock(repository, no_forced_switches, start):
    turns = 0
    done = threading.Event()

    def take_turns():
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0)  # Gives the lock up, and wants it back.

    other = threading.Thread(target=take_turns)
    other.start()
    gained = 0
    # The other thread gets a turn only if it wakes while the server ends, so a late one gets more
    # tries.
    for _ in range(50):
        running = start(repository)
        before = turns
        del running
        gained = turns - before
        if gained:
            break
    done.set()
    other.join(timeout=60)
    assert gained > 0
