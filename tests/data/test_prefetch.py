"""Items are computed ahead, in order; the thread ends with its consumer."""

import threading

from embershard.data.prefetch import prefetched
from tests.cases import refused


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "embershard-prefetch"]


def test_items_keep_their_order():
    assert list(prefetched((number for number in range(50)), depth=3)) == list(range(50))
    assert threads() == []


def test_at_most_depth_items_are_computed_ahead():
    computed, third = [], threading.Event()

    def items():
        for number in range(10):
            computed.append(number)
            if number == 3:
                third.set()
            yield number

    ahead = prefetched(items(), depth=3)
    assert next(ahead) == 0
    assert third.wait(60)  # One item is taken and three are ready.
    assert computed == [0, 1, 2, 3]
    ahead.close()
    assert computed == [0, 1, 2, 3]


def test_closing_ends_the_thread_and_the_items():
    closed = threading.Event()

    def items():
        try:
            while True:
                yield 0
        finally:
            closed.set()

    ahead = prefetched(items(), depth=2)
    next(ahead)
    ahead.close()
    assert closed.is_set()
    assert threads() == []


def test_an_error_is_raised_after_the_items_before_it():
    def items():
        yield 1
        raise ValueError("broken")

    ahead = prefetched(items(), depth=4)
    assert next(ahead) == 1
    with refused(ValueError, "broken"):
        next(ahead)
    assert threads() == []
