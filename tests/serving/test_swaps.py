"""Versions change under load, at half of the capacity: no error, no answer of two versions, no
memory lost, and no thread that serves is left where loading runs."""

import multiprocessing
import os
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.bench import LoadOptions, run_load
from embershard.bench.load_options import PooledRequest
from embershard.bench.target import find_target
from embershard.client import Client
from embershard.package.labels import write_label
from embershard.serving import Server, ServerOptions
from embershard.serving.metrics.history import resident_bytes
from tests.serving.asking import Asked, named, outputs_of
from tests.serving.messages import MessagePredictor
from tests.serving.serve import serve
from tests.serving.versions import ROWS, SCHEMA, publish

SWAPS = 100
GROWTH_BYTES = 16 << 20
REQUESTS = 500
RUN_SECONDS = 0.5
QUEUED = 1 << 20
"""Examples: as many as a machine that stands still for a moment leaves waiting, and more."""
OPTIONS = LoadOptions(
    in_flight=16, duration_seconds=RUN_SECONDS, warmup_seconds=0.0, timeout_seconds=60.0
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Versions 1 and 2, each with a table of its own."""
    folder = tmp_path_factory.mktemp("swapped")
    for version in (1, 2):
        publish(folder, version, table=version)
    return folder


def requests():
    """Mostly one example. Every tenth request has up to 600 and is cut."""
    chance = np.random.default_rng(3)
    for number in range(REQUESTS):
        examples = 1 if number % 10 else int(chance.integers(2, 600))
        request = Asked(
            num_examples=examples,
            dense={"price": chance.random(examples).tolist()},
            sparse={"item": chance.integers(ROWS, size=(examples, 1)).tolist()},
            schema=SCHEMA,
        )
        yield PooledRequest(named(request).SerializeToString(), examples, examples)


def scores_of(repository, version, messages):
    """Scores of each request, run alone by one version."""
    predictor = MessagePredictor(repository / "ranker" / str(version), threads=1)
    answers = [predictor.answers([message])[0] for message in messages]
    return [outputs_of(answer)["score"] for answer in answers]


class HalfLoad:
    """An open loop at half of the rate that a closed loop reaches. Answers are checked when the
    load is over, so that versions have time to load. Each must be the scores of the version that
    it names."""

    def __init__(self, address, repository):
        self.target = find_target(address)
        self.requests = list(requests())
        messages = [request.message for request in self.requests]
        self.scores = {version: scores_of(repository, version, messages) for version in (1, 2)}
        capacity = run_load(self.target, self.requests, OPTIONS)
        self.answered = capacity.ok
        self.options = replace(OPTIONS, in_flight=None, rate=capacity.ok_per_second / 2)
        # More requests than a run can send: a run keeps only the first answer to each.
        count = 100 + int(2 * capacity.ok_per_second * RUN_SECONDS)
        self.pool = list(islice(cycle(self.requests), count))
        self.failed = []
        self.scores_seen = Counter()
        """How often each request got each scores of each version: mostly the same bytes."""

    def send(self, is_over):
        while not is_over():
            result = run_load(self.target, self.pool, self.options, keep_answers=True)
            if result.ok != result.requests:
                self.failed.append(f"{dict(result.by_code)}: {dict(result.messages)}")
            assert sum(answer is not None for answer in result.answers) == result.ok
            for number, answer in enumerate(result.answers):
                if answer is not None:
                    response = pb.PredictResponse.FromString(answer)
                    (output,) = response.outputs
                    self.scores_seen[number % REQUESTS, response.version, output.values] += 1
            self.answered += result.ok

    def look(self):
        """How many answers were of each version."""
        seen = Counter()
        for (number, version, values), count in self.scores_seen.items():
            scores, expected = np.frombuffer(values, "<f4"), self.scores[version][number].ravel()
            if scores.shape != expected.shape or not np.allclose(scores, expected, rtol=1e-6):
                self.failed.append(f"version {version} gave {scores[:3]}, not {expected[:3]}")
            seen[version] += count
        return seen


def send_load(address, repository, test):
    """A process of its own, whose memory is none of the server's. ``test`` is told when the load
    starts, says when it is over, and is told how it went."""
    load = HalfLoad(address, repository)
    test.send("started")
    load.send(test.poll)
    seen = load.look()
    test.send((load.answered, load.failed, seen))


@contextmanager
def half_load(address, repository):
    """A function that ends the load and gives the number of answers, failures and versions."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=send_load, args=(address, repository, theirs), daemon=True)
    process.start()
    theirs.close()  # So that a load that fails ends `recv`.

    def end():
        ours.send("over")
        return ours.recv()

    try:
        assert ours.recv() == "started"
        yield end
    finally:
        ours.close()
        process.join()


def swap(server, repository, version):
    write_label(repository, "ranker", "stable", version)
    server.refresh()
    assert [package.version for package in server.packages if package.is_default] == [version]


@pytest.mark.slow
@pytest.mark.timeout(600)  # Versions load only in idle time.
def test_100_swaps_at_half_of_the_capacity(repository):
    with serve(repository, max_queued_examples=QUEUED) as server:
        with half_load(server.address, repository) as end:
            resident = []
            for number in range(SWAPS):
                swap(server, repository, 1 + number % 2)
                resident.append(resident_bytes())
            answered, failed, seen = end()
        # The least of many: on a busy machine requests pile up for a moment.
        grown = min(resident[-SWAPS // 4 :]) - min(resident[SWAPS // 8 : 3 * SWAPS // 8])
        assert failed == []
        assert seen.keys() == {1, 2}
        assert grown < GROWTH_BYTES, f"{grown / 1e6:.1f} MB"
        assert server.answered() == answered


def threads_that_give_way():
    """Threads of this process that get the time which all others leave."""
    count = 0
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # It has ended meanwhile.
            count += os.sched_getscheduler(int(thread)) == os.SCHED_IDLE
    return count


def test_no_serving_thread_has_idle_priority(repository):
    """A version's threads do not inherit the idle priority of the thread that loads it."""
    others = threads_that_give_way()
    with (
        Server(repository, options=ServerOptions(port=0, threads=2)) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert threads_that_give_way() == others
        swap(server, repository, 1)
        swap(server, repository, 2)
        loading = threads_that_give_way()
        assert loading > others
        for version in (1, 2, 1, 2):
            swap(server, repository, version)
            answer = client.predict("ranker", dense={"price": [5.0]}, sparse={"item": [[3]]})
            assert answer.version == version
        assert threads_that_give_way() == loading
