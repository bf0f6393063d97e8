"""Failure 6: what is too much is refused at once, the rest is answered, and then all is as before.

The benchmark `overload` measures how fast this is under an open loop.
"""

import numpy as np
import pytest

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

ROOM = EXAMPLES  # The queue holds one batch.
EACH = 256
FIT = ROOM // EACH
PUSHBACK = "grpc-retry-pushback-ms"


@pytest.fixture
def server(heavy):
    with serving_heavy(heavy, max_queued_examples=ROOM) as running:
        yield running


def test_the_queue_fills_and_the_rest_is_refused_meanwhile(server, channel, heavy):
    bodies = [body(EACH, seed=number) for number in range(3 * FIT)]
    running = run_long(server, channel, timeout=WAIT_SECONDS)
    calls = [predictor(channel).future(body, timeout=WAIT_SECONDS) for body in bodies]
    until(lambda: sum(call.done() for call in calls) == 2 * FIT)
    assert not running.done()
    assert server.metrics().total("embershard_queued_examples") == ROOM
    refused = [call for call in calls if call.done()]
    assert {call.code() for call in refused} == {Code.RESOURCE_EXHAUSTED}
    for call in refused:
        assert int(dict(call.trailing_metadata())[PUSHBACK]) > 0

    local = MessagePredictor(heavy / "heavy" / "1", threads=1)
    assert running.code() is Code.OK
    for message, call in zip(bodies, calls, strict=True):
        if call.code() is Code.OK:
            expected = outputs_of(local.answers([message])[0])["score"]
            assert np.abs(outputs_of(call.result())["score"] - expected).max() <= 1e-6
    until(lambda: is_idle(server))
    assert outcomes(server) == {
        ("OK", ""): 1 + FIT,
        ("RESOURCE_EXHAUSTED", "queue_full"): 2 * FIT,
    }
    # The queue holds the same number of requests as before: no refusal leaked anything.
    again = run_long(server, channel, timeout=WAIT_SECONDS)
    calls = [predictor(channel).future(body, timeout=WAIT_SECONDS) for body in bodies[:FIT]]
    assert {call.code() for call in [again, *calls]} == {Code.OK}
