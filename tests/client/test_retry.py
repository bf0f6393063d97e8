"""Which failures are worth another attempt, and after how long."""

import grpc
import pytest

from embershard.client.status import retry_seconds
from tests.cases import cases


class Failure(grpc.RpcError):
    def __init__(self, code, pushback_ms=None):
        self._code = code
        self._metadata = () if pushback_ms is None else (("grpc-retry-pushback-ms", pushback_ms),)

    def code(self):
        return self._code

    def trailing_metadata(self):
        return self._metadata


UNAVAILABLE = Failure(grpc.StatusCode.UNAVAILABLE)


def waited(failure, *, attempt=1, max_attempts=8, remaining_seconds=60):
    return retry_seconds(
        failure, attempt=attempt, max_attempts=max_attempts, remaining_seconds=remaining_seconds
    )


def test_unavailable_doubles_the_pause_up_to_a_second():
    waits = [waited(UNAVAILABLE, attempt=attempt) for attempt in range(1, 9)]
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, None]


def test_the_pause_before_the_thousandth_retry_is_the_longest():
    assert waited(UNAVAILABLE, attempt=2000, max_attempts=10_000) == 1.0


@cases(
    ("remaining_seconds", "wait_seconds"),
    {
        "just-in-time": (0.051, 0.05),
        "deadline-passes-during-the-wait": (0.05, None),
        "too-late": (-1, None),
    },
)
def test_no_attempt_starts_behind_the_deadline(remaining_seconds, wait_seconds):
    wait = waited(UNAVAILABLE, remaining_seconds=remaining_seconds)
    assert wait == wait_seconds


@cases(
    ("pushback_ms", "wait_seconds"),
    {
        "stated": ("20", 0.02),
        "at-once": ("0", 0.0),
        "never": ("-1", None),
        "not-a-number": ("soon", None),
        "not-stated": (None, None),
    },
)
def test_resource_exhausted_waits_as_long_as_the_server_says(pushback_ms, wait_seconds):
    failure = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, pushback_ms)
    assert waited(failure) == wait_seconds


@pytest.mark.parametrize(
    "code",
    [code for code in grpc.StatusCode if code.name not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED")],
    ids=lambda code: code.name.lower().replace("_", "-"),
)
def test_nothing_else_is_sent_again(code):
    failure = Failure(code, pushback_ms="20")
    assert waited(failure) is None
