"""Runs against a server that stalls, fails, or is slow: what is counted, and when it ends."""

import threading

import grpc
import pytest

from embershard.bench.load_options import LoadOptions, PooledRequest
from embershard.bench.run import run_load
from embershard.errors import InputError
from tests.bench.fake_predictor import answers, fake_predictor

POOL = [PooledRequest(b"\x20\x01", 1, 0), PooledRequest(b"\x20\x02", 2, 0)]
"""Messages that say 1 and 2 examples."""

STALL_SECONDS = 0.4
STALLED = 50


def stalls_once(number, context):
    """The server's only thread is held up, and with it everyone who comes meanwhile."""
    if number == STALLED:
        threading.Event().wait(STALL_SECONDS)
    return answers(number, context)


def over(result, seconds):
    """How many answers took at least so long."""
    return sum(count for low, _, count in result.latency.buckets if low * 1e-9 >= seconds)


def test_an_open_loop_counts_a_stall_on_every_request_scheduled_in_it():
    # 200 a second for 2 s: about 80 requests fall into the stall, 40 into its first half.
    with fake_predictor(stalls_once) as fake:
        options = LoadOptions(rate=200, duration_seconds=2, warmup_seconds=0, timeout_seconds=20)
        result = run_load(fake.target, POOL, options)
    assert result.ok == result.requests > 200
    assert over(result, STALL_SECONDS / 2) >= 15
    assert result.latency.percentile_seconds(99) >= 0.75 * STALL_SECONDS


def test_a_closed_loop_sends_nothing_while_it_waits_for_the_same_stall():
    """So it is one slow answer among hundreds. Another thread of the server sees what comes."""
    came = []

    def stalls(number, context):
        if number == STALLED:
            threading.Event().wait(STALL_SECONDS)
            came.append(len(fake.requests) - 1 - STALLED)
        return answers(number, context)

    with fake_predictor(stalls, threads=2) as fake:
        options = LoadOptions(
            in_flight=1,
            max_requests=400,
            duration_seconds=100,
            warmup_seconds=0,
            timeout_seconds=60,
        )
        result = run_load(fake.target, POOL, options)
    assert came == [0]
    assert result.ok == 400
    assert result.latency.max_seconds >= STALL_SECONDS


def test_failures_are_counted_by_code_with_their_first_message():
    def answer(number, context):
        if number % 3 == 0:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"full at {number}")
        return answers(number, context)

    with fake_predictor(answer) as fake:
        options = LoadOptions(in_flight=1, max_requests=30, warmup_seconds=0, timeout_seconds=20)
        result = run_load(fake.target, POOL, options)
    assert result.by_code == {"OK": 20, "RESOURCE_EXHAUSTED": 10}
    assert result.messages == {"RESOURCE_EXHAUSTED": "full at 0"}
    assert result.examples_ok == 30  # Numbers 1 and 2, 4 and 5, ...: one odd and one even each.
    assert result.latency.count == 20


def test_requests_go_out_unchanged_and_in_turn():
    with fake_predictor() as fake:
        options = LoadOptions(in_flight=1, max_requests=5, warmup_seconds=0, timeout_seconds=20)
        run_load(fake.target, POOL, options)
        assert fake.requests == [POOL[number % 2].message for number in range(5)]


def test_a_run_ends_by_itself_against_a_server_that_never_answers():
    free = threading.Event()

    def answer(number, context):
        free.wait(600)  # Longer than the test may take.
        return answers(number, context)

    with fake_predictor(answer) as fake:
        options = LoadOptions(
            rate=100, duration_seconds=0.5, warmup_seconds=0.2, timeout_seconds=0.5
        )
        result = run_load(fake.target, POOL, options)
        free.set()
    assert set(result.by_code) == {"DEADLINE_EXCEEDED"}


def test_the_warm_up_is_sent_and_not_counted():
    with fake_predictor() as fake:
        options = LoadOptions(
            rate=200, duration_seconds=0.3, warmup_seconds=0.5, timeout_seconds=20
        )
        result = run_load(fake.target, POOL, options)
        assert len(fake.requests) > result.requests > 0
    assert result.window_seconds == 0.3
    assert result.scheduled_per_second == pytest.approx(200, rel=0.5)


def test_progress_is_told_and_ends_with_the_whole():
    seen = []
    with fake_predictor() as fake:
        options = LoadOptions(in_flight=1, max_requests=50, warmup_seconds=0, timeout_seconds=20)
        run_load(fake.target, POOL, options, progress=seen.append)
    assert seen[-1].requests == 50
    assert seen[-1].latency.count == 50
    assert seen[-1].errors == 0


def test_an_exception_while_watching_ends_the_run():
    class EnoughError(Exception):
        pass

    def interrupt(now):
        raise EnoughError

    with fake_predictor() as fake:
        # Longer than the test may take.
        options = LoadOptions(rate=50, duration_seconds=3600, timeout_seconds=20)
        with pytest.raises(EnoughError):
            run_load(fake.target, POOL, options, progress=interrupt)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "one of: a rate, recorded times, a number in flight", id="none"),
        pytest.param({"rate": 1, "in_flight": 1}, "one of: a rate, recorded times", id="both"),
        pytest.param({"rate": 0}, "rate: expected 0.001", id="no-rate"),
        pytest.param({"rate": float("nan")}, "rate: expected .* got nan", id="nan"),
        pytest.param({"in_flight": 0}, "in_flight: expected 1", id="none-in-flight"),
        pytest.param({"rate": 1, "duration_seconds": 1e9}, "duration: expected", id="for-ever"),
        pytest.param({"rate": 1, "max_requests": 0}, "requests: expected 1", id="no-requests"),
        pytest.param({"in_flight": 2, "threads": 3}, "threads: expected at most", id="threads"),
    ],
)
def test_loads_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        LoadOptions(**options)
