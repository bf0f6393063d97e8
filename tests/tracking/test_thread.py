"""A tracker's thread logs points in order, and no tracker can end training."""

import threading

import pytest

from embershard.tracking import thread
from embershard.tracking.thread import TrackerThread


class Recorder:
    """Records points. Each call raises ``error``, and ``log`` waits for ``answers``."""

    def __init__(self, error=None, answers=None):
        self.points, self.finished, self.calls = [], None, 0
        self._error, self._answers = error, answers

    def log(self, points):
        self.calls += 1
        if self._answers is not None:
            self._answers.wait()
        if self._error is not None:
            raise self._error
        self.points += points

    def close(self, *, finished):
        self.finished = finished


@pytest.fixture
def answers():
    event = threading.Event()
    yield event
    event.set()


def test_points_are_logged_in_order_before_close_returns():
    tracker = Recorder()
    worker = TrackerThread("a tracker", lambda: tracker)
    for step in range(500):
        worker.log(step, {"loss": step / 2})
    worker.close(finished=True)
    assert [(point.step, point.scalars) for point in tracker.points] == [
        (step, {"loss": step / 2}) for step in range(500)
    ]
    assert tracker.finished is True


def test_a_tracker_that_fails_is_warned_of_once(caplog):
    tracker = Recorder(error=OSError("the server is gone"))
    worker = TrackerThread("a tracker", lambda: tracker)
    for step in range(50):
        worker.log(step, {})
    worker.close(finished=True)
    worker.log(50, {})
    assert caplog.messages == [
        "a tracker: the server is gone; this run is not tracked there any more"
    ]
    assert tracker.calls == 1


def test_close_does_not_wait_for_a_tracker_without_answer(caplog, answers):
    worker = TrackerThread("a tracker", lambda: Recorder(answers=answers))
    worker.close(finished=True, timeout_seconds=0.01)
    assert caplog.messages == [
        "a tracker: no answer within 0.01 s; this run is not tracked there any more"
    ]


def test_steps_that_a_slow_tracker_leaves_queued_are_bounded(caplog, answers, monkeypatch):
    monkeypatch.setattr(thread, "QUEUED_POINTS_MAX", 3)
    worker = TrackerThread("a tracker", lambda: Recorder(answers=answers))
    for step in range(100):
        worker.log(step, {})
    (message,) = caplog.messages
    assert message.startswith("a tracker: 3 steps wait to be logged; ")
    answers.set()
    worker.close(finished=False)
