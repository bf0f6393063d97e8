"""Which failures are worth another attempt, and after how long."""

import grpc
import pytest

from embershard.client.retry import RetryRules

RULES = RetryRules(max_attempts=8, first_backoff_seconds=0.05, backoff_seconds_max=1.0)


class Failure(grpc.RpcError):
    def __init__(self, code, pushback_ms=None):
        self._code = code
        self._metadata = () if pushback_ms is None else (("grpc-retry-pushback-ms", pushback_ms),)

    def code(self):
        return self._code

    def trailing_metadata(self):
        return self._metadata


UNAVAILABLE = Failure(grpc.StatusCode.UNAVAILABLE)


def test_unavailable_waits_twice_as_long_each_time_up_to_a_second():
    waits = [
        RULES.wait_seconds(UNAVAILABLE, attempt=attempt, remaining_seconds=60)
        for attempt in range(1, 9)
    ]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, None]


def test_one_attempt_is_never_followed_by_another():
    once = RetryRules(max_attempts=1)
    assert once.wait_seconds(UNAVAILABLE, attempt=1, remaining_seconds=60) is None


@pytest.mark.parametrize(
    ("remaining_seconds", "wait_seconds"),
    [
        pytest.param(0.051, 0.05, id="just-in-time"),
        pytest.param(0.05, None, id="no-time-left-after-the-wait"),
        pytest.param(-1, None, id="too-late"),
    ],
)
def test_no_attempt_starts_behind_the_deadline(remaining_seconds, wait_seconds):
    wait = RULES.wait_seconds(UNAVAILABLE, attempt=1, remaining_seconds=remaining_seconds)
    assert wait == wait_seconds


@pytest.mark.parametrize(
    ("pushback_ms", "wait_seconds"),
    [
        pytest.param("20", 0.02, id="stated"),
        pytest.param("0", 0.0, id="at-once"),
        pytest.param("-1", None, id="never"),
        pytest.param("soon", None, id="not-a-number"),
        pytest.param(None, None, id="not-stated"),
    ],
)
def test_resource_exhausted_waits_as_long_as_the_server_says(pushback_ms, wait_seconds):
    failure = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, pushback_ms)
    assert RULES.wait_seconds(failure, attempt=1, remaining_seconds=60) == wait_seconds


@pytest.mark.parametrize(
    "code",
    [code for code in grpc.StatusCode if code.name not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")],
    ids=lambda code: code.name.lower().replace("_", "-"),
)
def test_nothing_else_is_sent_again(code):
    failure = Failure(code, pushback_ms="20")
    assert RULES.wait_seconds(failure, attempt=1, remaining_seconds=60) is None


def test_each_attempt_of_a_call_is_counted_and_the_last_failure_is_raised_as_it_is():
    attempts = RULES.begin(deadline=1000.0)
    pauses = [attempts.pause_after(UNAVAILABLE, now=float(now)) for now in range(7)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    with pytest.raises(Failure) as raised:
        attempts.pause_after(UNAVAILABLE, now=7.0)
    assert raised.value is UNAVAILABLE


def test_the_attempts_of_a_call_share_one_deadline_and_two_calls_nothing():
    first, second = RULES.begin(deadline=10.0), RULES.begin(deadline=10.0)
    assert first.pause_after(UNAVAILABLE, now=5.0) == 0.05
    assert first.pause_after(UNAVAILABLE, now=9.0) == 0.1
    with pytest.raises(Failure):
        first.pause_after(UNAVAILABLE, now=9.9)  # 0.2 s would be too long.
    assert second.pause_after(UNAVAILABLE, now=9.9) == 0.05
