"""Failure 7: low cannot starve for ever; high overtakes.

No two requests fit one batch, so that the order of the answers is that of the batches: a line of
requests is there while a long batch runs, and then they run one by one.
"""

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from tests.serving.asking import outputs_of
from tests.serving.failures.busy import (
    EXAMPLES,
    WAIT_SECONDS,
    body,
    is_idle,
    outcomes,
    predictor,
    run_long,
    serving_heavy,
    until,
)
from tests.serving.messages import MessagePredictor
from tests.serving.refused import Code

EACH = 32
FIT = EXAMPLES // EACH
"""How many the queue holds."""

SHARE = 8
"""One batch of so many begins with low ones, docs/protocols.md says."""

LOW, HIGH = pb.PRIORITY_BACKGROUND, pb.PRIORITY_INTERACTIVE


@pytest.fixture
def server(heavy):
    with serving_heavy(heavy, merge_examples=EACH, max_queued_examples=EXAMPLES) as running:
        yield running


class Line:
    """Requests that are sent one after the other, and the order in which they are answered."""

    def __init__(self, server, channel):
        self._server, self._predict = server, predictor(channel)
        self.calls = []
        self.ended = []
        """Priorities, in the order of the answers."""

    def send(self, priority, count, again_until=lambda: True):
        """Returns when they wait in the server's queue. Each that is answered is followed by
        another, until then."""
        queued = self._server.metrics().total("embershard_queued_requests")
        for _ in range(count):
            self._send(priority, again_until)
        until(lambda: self._server.metrics().total("embershard_queued_requests") == queued + count)

    def _send(self, priority, again_until):
        def ended(_):
            if not again_until():
                self._send(priority, again_until)
            self.ended.append(priority)

        message = with_priority(priority, seed=len(self.calls))
        call = self._predict.future(message, timeout=WAIT_SECONDS)
        self.calls.append((message, call))
        call.add_done_callback(ended)

    def wait(self):
        """Until each is answered, rightly."""
        until(lambda: len(self.ended) == len(self.calls))
        assert {call.code() for _, call in self.calls} == {Code.OK}


def with_priority(priority, seed=0):
    message = pb.PredictRequest.FromString(body(EACH, seed))
    message.priority = priority
    return message.SerializeToString()


def test_low_ones_get_one_batch_in_eight_while_high_ones_wait(server, channel, heavy):
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    line = Line(server, channel)
    line.send(LOW, 6)
    line.send(HIGH, 50)
    assert not running.done()
    line.wait()
    one_turn = [HIGH] * (SHARE - 1) + [LOW]
    assert line.ended == one_turn * 6 + [HIGH] * (50 - 6 * (SHARE - 1))
    local = MessagePredictor(heavy / "heavy" / "1", threads=1)
    for message, call in line.calls[::9]:  # Of both priorities.
        expected = outputs_of(local.answers([message])[0])["score"]
        assert np.abs(outputs_of(call.result())["score"] - expected).max() <= 1e-6


def test_a_high_one_overtakes_the_low_ones_that_wait(server, channel):
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    line = Line(server, channel)
    line.send(LOW, 10)
    line.send(HIGH, 1)
    assert not running.done()
    line.wait()
    assert line.ended == [HIGH] + [LOW] * 10


def test_low_ones_go_on_for_as_long_as_high_ones_keep_coming(server, channel):
    low = 5
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    line = Line(server, channel)
    line.send(LOW, low)
    line.send(HIGH, 2 * SHARE, again_until=lambda: line.ended.count(LOW) == low)
    assert not running.done()
    until(lambda: line.ended.count(LOW) == low)
    line.wait()
    last = max(place for place, priority in enumerate(line.ended) if priority == LOW)
    # Where those that come again do so late, low ones take their place and are done sooner.
    assert line.ended[: 2 * SHARE] == ([HIGH] * (SHARE - 1) + [LOW]) * 2
    assert last < low * SHARE


def test_low_ones_fill_half_of_the_queue_and_leave_the_rest_to_high_ones(server, channel):
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    message = with_priority(LOW)
    low = [predictor(channel).future(message, timeout=WAIT_SECONDS) for _ in range(FIT)]
    until(lambda: sum(call.done() for call in low) == FIT // 2)
    assert {call.code() for call in low if call.done()} == {Code.RESOURCE_EXHAUSTED}
    line = Line(server, channel)
    line.send(HIGH, FIT // 2)
    assert not running.done()
    assert server.metrics().total("embershard_queued_requests") == FIT
    line.wait()
    until(lambda: is_idle(server))
    assert outcomes(server) == {
        ("OK", ""): 1 + FIT,
        ("RESOURCE_EXHAUSTED", "queue_full"): FIT // 2,
    }
