"""Failure 5: a request past its deadline, or whose client disconnects, ends then, uncomputed.

Deadlines are the server's own, since clients without one get that: no client's clock answers.
"""

import pytest

from tests.serving.asking import outputs_of
from tests.serving.counts import queued
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
from tests.serving.refused import Code

DEADLINE_MS = 200


@pytest.fixture
def server(heavy):
    with serving_heavy(heavy, default_timeout_ms=DEADLINE_MS) as running:
        yield running


def test_a_waiting_request_expires_while_the_batch_runs_on(server, channel):
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    waiting = predictor(channel).future(body(2))
    assert waiting.code() is Code.DEADLINE_EXCEEDED
    assert not running.done()
    assert server.metrics().total("embershard_batches") == 0  # None has ended.
    assert not any(queued(server).values())
    assert outputs_of(running.result())["score"].shape == (EXAMPLES,)
    until(lambda: is_idle(server))
    assert server.metrics().total("embershard_batches") == 1  # The other request was not computed.
    assert outcomes(server) == {("OK", ""): 1, ("DEADLINE_EXCEEDED", "expired"): 1}
