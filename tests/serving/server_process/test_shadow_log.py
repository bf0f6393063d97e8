"""The log says when a shadow version compares next to nothing, and why."""

import io
import json

import pytest

from embershard.serving.metric import Metrics
from embershard.serving.server_process.logs import EventLog
from embershard.serving.server_process.shadow_log import ShadowLog, ShadowWatch
from tests.serving.failures.busy import until
from tests.serving.metrics.figures import SECONDS, histogram, of_version

NO_DROPS = {"schema": 0, "copies_under_way": 0, "bytes_under_way": 0}


def counted(
    *, sent=0, compared=0, failed=0, batch_seconds=0.0, cpu_seconds=0.0, start=1.0, **dropped
):
    """Metrics of a shadow version with such counts."""
    figures = {
        "start_time_seconds": start,
        "shadow_requests": sent,
        "shadow_dropped": {**NO_DROPS, **dropped},
        "shadow_compared": compared,
        "shadow_difference": histogram(SECONDS, [compared, 0, 0, 0, 0]),
        "shadow_failed": failed,
        "shadow_batch_seconds": batch_seconds,
        "shadow_cpu_seconds": cpu_seconds,
    }
    return Metrics(of_version({f"embershard_{name}": count for name, count in figures.items()}))


def said_of(*readings):
    """What a watch finds at each, a minute apart."""
    watch = ShadowWatch(shadow_time=1 / 128)
    return [watch.look(each, 60.0 * minute) for minute, each in enumerate(readings)]


def test_one_copy_compared_of_257_is_said_with_its_counts():
    _, (found,) = said_of(counted(), counted(sent=257, compared=1, copies_under_way=43))
    assert found.pop("why").startswith("no batch of copies ended")
    assert found == {
        "model": "ranker",
        "version": 3,
        "sampled": 300,
        "compared": 1,
        "failed": 0,
        "dropped_schema": 0,
        "dropped_copies_under_way": 43,
        "dropped_bytes_under_way": 0,
    }


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        pytest.param(
            {"schema": 100},
            "its inputs or outputs are not those of the version that answers",
            id="schema",
        ),
        pytest.param(
            {"sent": 100, "failed": 99, "compared": 1, "batch_seconds": 1.0, "cpu_seconds": 1.0},
            "its program failed, or it was no shadow any more",
            id="failed",
        ),
        pytest.param(
            {"sent": 100, "compared": 8, "batch_seconds": 50.0, "cpu_seconds": 2.0},
            "its batches waited 48.0 of their 50.0 s for a processor that other threads left",
            id="no-processor",
        ),
        pytest.param(
            {"sent": 264, "compared": 8, "bytes_under_way": 9, "batch_seconds": 0.5,
             "cpu_seconds": 0.4},
            "--shadow-time 0.00781: its batches took 0.50 of 60 s, and it rests between them",
            id="share-of-time",
        ),
    ],
)  # fmt: skip
def test_the_reason_is_said(counts, why):
    _, (found,) = said_of(counted(), counted(**counts))
    assert found["why"] == why


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param({"sent": 100, "compared": 10}, id="a-tenth-is-compared"),
        pytest.param({"sent": 19}, id="too-few-to-say"),
        pytest.param({}, id="nothing-is-sampled"),
    ],
)
def test_a_shadow_that_compares_enough_is_not_in_the_log(counts):
    assert said_of(counted(), counted(**counts)) == [[], []]


def test_a_shadow_is_named_again_only_after_it_compared_enough():
    found = said_of(
        counted(),
        counted(sent=100),
        counted(sent=200),
        counted(sent=300, compared=100),
        counted(sent=400, compared=100),
    )
    assert [len(each) for each in found] == [0, 1, 0, 0, 1]


def test_each_loaded_version_is_counted_from_its_own_start():
    assert said_of(counted(), counted(sent=100, start=2.0)) == [[], []]


class Counting:
    """A server whose shadow gets a hundred copies more from one reading to the next."""

    def __init__(self):
        self.reads = 0

    def metrics(self):
        self.reads += 1
        return counted(sent=100 * self.reads)


def test_the_thread_writes_the_event_and_ends_when_closed():
    stream, server = io.BytesIO(), Counting()
    events = EventLog(stream, as_json=True)
    log = ShadowLog(server, events, shadow_time=0.5, interval_seconds=0.001)
    until(lambda: stream.getvalue().endswith(b"}\n"))
    log.close()
    events.close()
    (line,) = map(json.loads, stream.getvalue().splitlines())
    assert line["event"] == "shadow_compares_little"
    assert (line["sampled"], line["compared"]) == (100, 0)
