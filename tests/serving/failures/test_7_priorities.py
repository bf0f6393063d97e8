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
"""One batch of so many begins with low ones, docs/scheduling.md says."""

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
        """Returns when `count` requests wait in the server's queue. Until then each answered one
        is replaced by another."""
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
        """Waits until all calls have ended, and checks that they succeeded."""
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
    for message, call in line.calls[::9]:  # Messages of both priorities.
        expected = outputs_of(local.answers([message])[0])["score"]
        assert np.abs(outputs_of(call.result())["score"] - expected).max() <= 1e-6
