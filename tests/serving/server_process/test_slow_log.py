"""Slow requests in the log: one line each, so many a second, until the server has stopped."""

import io
import json
import threading

from embershard.serving.server_process.logs import EventLog
from embershard.serving.server_process.threads import SLOW_LINES_PER_SECOND, SlowRequestLog

NEW_YEAR = 1_767_225_600.25

SLOW = {
    "unix_seconds": NEW_YEAR,
    "code": "DEADLINE_EXCEEDED",
    "reason": "expired",
    "message": "the deadline passed",
    "examples": 2,
    "ids": 30,
    "bytes": 400,
    "peer": "ipv4:127.0.0.1:5",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "request_id": "a\nb",
    "queue_us": 1,
    "lookup_us": 2,
    "dense_us": 3,
    "total_us": 7,
}


class FakeServer:
    """Hands out what it was given, then waits for `stop`."""

    def __init__(self, *batches):
        self.state = "serving"
        self._batches = list(batches)
        self._stopped = threading.Event()

    def wait_slow(self, timeout_seconds):
        if self._batches:
            return self._batches.pop(0)
        self._stopped.wait(60)
        return []

    def stop(self):
        self.state = "stopped"
        self._stopped.set()


def slow_lines(*batches, monotonic):
    stream = io.BytesIO()
    server = FakeServer(*batches)
    log = EventLog(stream, as_json=True, wall=lambda: NEW_YEAR)
    slow = SlowRequestLog(server, log, monotonic=monotonic)
    server.stop()
    slow.join()
    log.close(60)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_slow_request_is_one_line_with_all_that_is_known():
    (line,) = slow_lines([SLOW], monotonic=lambda: 0.0)
    assert line.pop("event") == "slow_request"
    assert line.pop("time") == "2026-01-01T00:00:00.250Z"
    assert line == {name: value for name, value in SLOW.items() if name != "unix_seconds"}


def test_more_than_fifty_a_second_are_counted_and_left_out():
    lines = slow_lines([SLOW] * 256, [SLOW] * 9, monotonic=lambda: 0.0)
    assert [line["event"] for line in lines[:-1]] == ["slow_request"] * SLOW_LINES_PER_SECOND
    assert lines[-1]["event"] == "slow_requests_left_out"
    assert lines[-1]["count"] == 265 - SLOW_LINES_PER_SECOND


def test_each_second_has_fifty_of_its_own():
    times = iter([number / 60 for number in range(10_000)])
    results = [line["event"] for line in slow_lines([SLOW] * 150, monotonic=lambda: next(times))]
    assert results.count("slow_request") >= 2 * SLOW_LINES_PER_SECOND
    first = results.index("slow_requests_left_out")
    assert results[:first] == ["slow_request"] * SLOW_LINES_PER_SECOND
    assert "slow_request" in results[first:]
