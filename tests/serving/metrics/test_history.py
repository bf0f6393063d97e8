"""Quantiles, what a second's figures are, and what is kept of them."""

import errno
from pathlib import Path

import pytest

from embershard.serving.metric import Histogram, Metrics
from embershard.serving.metrics.history import SAMPLES_MAX, History, between, resident_bytes
from tests.cases import cases
from tests.serving.metrics.figures import (
    BUSY,
    SECONDS,
    FakeServer,
    busy,
    empty,
    histogram,
    of_version,
)


@cases(
    ("share", "counts", "expected"),
    {
        "nothing-observed": (0.5, [0, 0, 0, 0], None),
        "half-of-the-first-bucket": (0.5, [10, 0, 0, 0], 0.5),
        "a-quarter-into-the-second": (0.5, [4, 4, 2, 0], 1.25),
        "an-empty-bucket-is-passed": (0.9, [5, 0, 5, 0], 3.6),
        "all": (1.0, [1, 1, 0, 0], 2.0),
        "beyond-the-last-bound": (0.99, [1, 0, 0, 9], 4.0),
    },
)
def test_a_quantile_lies_where_histogram_quantile_puts_it(share, counts, expected):
    assert Histogram([1.0, 2.0, 4.0], counts, 0.0).quantile(share) == pytest.approx(expected)


def test_figures_of_the_time_between_two_readings():
    sample = between(empty(), busy(), 2.0)
    expected = {
        "answered": (40 + 26) / 2,
        "overloaded": (34 + 33 + 32 + 30 + 20 + 19 + 18 + 16) / 2,
        "abandoned": (31 + 17) / 2,
        "refused": (39 + 38 + 37 + 36 + 35 + 25 + 24 + 23 + 22 + 21) / 2,
        "failed": (29 + 28 + 27 + 15 + 14 + 13) / 2,
        "examples": 45.5,
        "received_bytes": 61_728,
        "sent_bytes": 32_716,
        "p50:ranker": 0.0015,  # The 20th of 40: half of the second bucket's 20 from 1 to 2 ms.
        "p90:ranker": 0.002 + 0.003 * 6 / 7,  # The 36th: 6 of 7 from 2 to 5 ms.
        "p99:ranker": 0.01,  # Beyond the last bound.
        "queue_seconds": 0.0625 / 42,
        "lookup_seconds": 0.03125 / 11,
        "dense_seconds": 0.046875 / 11,
        "batch_fill": 5.8125 / 11,
        "batch_examples": 93 / 11,
        "unknown_share": 43 / 500,
        "dense_share": 0.046875 / 2 / 2,  # Two seconds, each with two slots.
        "device:cpu:0": 0.0625,
        "device:cpu:1": 0.03125,
        "queued_examples": 15,
        "in_flight": 18,
    }
    assert sample == pytest.approx(expected)


def test_each_model_has_a_latency_of_its_own():
    slow = {**BUSY, "embershard_request_seconds": histogram(SECONDS, [0, 0, 0, 10, 0], 0.08)}
    finder = of_version(slow, model="finder")
    sample = between(empty(), Metrics([*busy(), *finder]), 1.0)
    assert (sample["p50:ranker"], sample["p50:finder"]) == pytest.approx((0.0015, 0.0075))


@pytest.mark.parametrize("slots", [0, 1, 2])
def test_load_is_never_above_all_slots(slots):
    """A batch counts in the second in which it ends, also one that began long before."""
    later = busy(
        slots=slots,
        dense_seconds=histogram(SECONDS, [0, 6, 5, 0, 0], 7.5),
        device_lookup_seconds={"cpu:0": 3.75, "cpu:1": 0.125},
    )
    sample = between(busy(), later, 1.0)
    assert (sample["dense_share"], sample["device:cpu:0"]) == (1, 1)
    assert sample["device:cpu:1"] == 0


def test_a_second_without_traffic_has_rates_of_0_and_no_means():
    sample = between(busy(), busy(), 1.0)
    assert (sample["answered"], sample["examples"], sample["dense_share"]) == (0, 0, 0)
    for name in ("p50:ranker", "p99:ranker", "queue_seconds", "batch_fill", "unknown_share"):
        assert sample[name] is None


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def server():
    return FakeServer()


@pytest.fixture
def history(server, clock):
    return History(
        server.metrics,
        monotonic=clock,
        wall=lambda: 1000 + clock.now,
        cpu=lambda: clock.now / 4,
        memory=lambda: 4096.0,
    )


def test_samples_are_what_changed_since_the_last(history, server, clock):
    history.take()
    assert (history.taken, history.after(0)) == (0, [])
    clock.now, server.now = 2.0, busy()
    history.take()
    clock.now = 3.0
    history.take()
    first, second = history.after(0)
    assert (first["answered"], second["answered"]) == (33, 0)
    assert (first["cpu_cores"], first["resident_bytes"]) == (0.25, 4096)
    assert [first["unix_seconds"], second["unix_seconds"]] == [1002, 1003]


def test_only_what_is_new_is_handed_out(history, clock):
    for second in range(6):
        clock.now = float(second)
        history.take()
    assert history.taken == 5
    assert [sample["unix_seconds"] for sample in history.after(3)] == [1004, 1005]
    assert history.after(5) == []
    assert history.after(6) == []


def test_ten_minutes_are_kept(history, clock):
    for second in range(SAMPLES_MAX + 101):
        clock.now = float(second)
        history.take()
    kept = history.after(0)
    assert (len(kept), history.taken) == (600, 700)
    assert (kept[0]["unix_seconds"], kept[-1]["unix_seconds"]) == (1101, 1700)


def test_a_clock_that_stands_still_gives_no_sample(history):
    history.take()
    history.take()
    assert history.taken == 0


def test_memory_is_not_known_where_no_file_may_be_opened(monkeypatch):
    def refused(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    assert resident_bytes() > 2**20
    monkeypatch.setattr(Path, "read_text", refused)
    assert resident_bytes() is None
