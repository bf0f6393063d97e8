"""Two pods that follow one object store, under load, while labels move and processes are killed."""

import json
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.fetch.conftest import BUCKET
from tests.fetch.pods import INTERVAL_SECONDS, Pod
from tests.serving.failures.busy import until
from tests.serving.versions import publish

VERSIONS = (1, 2, 3)
"""That labels lead to. Version 4 is higher, is in every repository, and has no label."""

KILLED = [
    ("nothing", 0),
    ("nothing", 0),
    ("server", 0),
    ("server", 1),
    ("watch", 0),
    ("pod", 0),
    ("pod", 1),
]
"""Process to kill and number of its pod, for each kill of a round; the order is random."""


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    for version in (*VERSIONS, 4):
        publish(folder, version)
    return folder


def put_label(store, version):
    body = json.dumps({"stable": version, "canary": 4}).encode()
    store.client.put_object(Bucket=BUCKET, Key="repository/ranker/labels.json", Body=body)


@pytest.fixture
def pods(published, store, tmp_path_factory):
    store.put(published)
    put_label(store, 3)
    folder = tmp_path_factory.mktemp("pods")  # A short path: sockets have at most 107 bytes.
    results = [Pod(store.url, folder / name) for name in ("a", "b")]
    try:
        for pod in results:
            (pod.repository / "ranker").mkdir(parents=True)
            highest = ["cp", "-rl", published / "ranker" / "4", pod.repository / "ranker" / "4"]
            subprocess.run(list(map(str, highest)), check=True)
            pod.fetch()
            pod.start_watch()
            assert pod.start_server() == 3
        yield results
    finally:
        for pod in results:
            for watch in (pod.watch, pod.server):
                if watch is not None and watch.process.poll() is None:
                    watch.process.kill()
                    watch.process.communicate()
            print((pod.folder / "watch.log").read_text())


def is_answering(pod, version):
    return pod.server.process.poll() is None and pod.answers[-1:] == [version]


def has_fetched(pod, moves):
    return pod.watch.count("label_moved") >= moves


def answered(pod, more):
    """Waits for so many answers more."""
    count = len(pod.answers) + more
    until(lambda: len(pod.answers) >= count or pod.failed)


def kill_and_restart(pod, what):
    """The version that the pod answers with after its restart. None: the server was not
    restarted."""
    if what == "server":
        pod.kill_server()
        return pod.start_server()
    if what == "watch":
        pod.watch.kill()
        pod.start_watch()
    if what == "pod":
        pod.kill()
        pod.fetch()
        pod.start_watch()
        return pod.start_server()
    return None


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1])
def test_label_moves_reach_every_pod_also_killed_ones(store, pods, seed):
    chance = random.Random(seed)
    rounds = chance.sample(KILLED, len(KILLED))
    labelled = 3
    with ThreadPoolExecutor(len(pods)) as beside:
        loads = [beside.submit(pod.load) for pod in pods]
        for what, number in rounds:
            answered(pods[0], chance.randint(1, 200))
            before, labelled = labelled, chance.choice([v for v in VERSIONS if v != labelled])
            moves = [pod.watch.count("label_moved") for pod in pods]
            start = time.monotonic()
            put_label(store, labelled)
            if what != "nothing":
                pod = pods[number]
                answered(pod, chance.randint(1, 200))
                restarted = kill_and_restart(pod, what)
                # A pod whose watch has not seen the move yet serves the old label.
                allowed = {"server": {before, labelled}, "pod": {labelled}, "watch": {None}}
                assert restarted in allowed[what]
            if what == "nothing":
                for pod, count in zip(pods, moves, strict=True):
                    until(partial(has_fetched, pod, count + 1))
                fetched = time.monotonic() - start
            for pod in pods:
                until(partial(is_answering, pod, labelled))
            if what == "nothing":
                answered_by = time.monotonic() - start
                print(
                    f"\nboth pods fetched the move in {fetched:.2f} s, served in {answered_by:.2f}"
                )
        assert [pod.stop() for pod in pods] == [[0, 0], [0, 0]]
        for load in loads:
            load.result()
    count = sum(len(pod.answers) for pod in pods)
    print(f"{count} answers, watched every {INTERVAL_SECONDS} s")
    assert [pod.failed for pod in pods] == [[], []]
    assert {version for pod in pods for version in pod.answers} <= set(VERSIONS)
