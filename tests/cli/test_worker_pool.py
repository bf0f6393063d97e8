"""One pool of workers runs the batches of all models and versions of `embershard serve`."""

import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from embershard.client import Client
from embershard.errors import NotFoundError
from embershard.export import export_model
from embershard.package.labels import write_label
from tests.attack.states import flags, metric, metrics_flags, read_log_until
from tests.cli.running import serving
from tests.serving.endless import ENDLESS_PRICE, LOOP_BEGINS, EndlessForOnePrice, publish_endless
from tests.serving.versions import SCHEMA, Telling, publish

pytestmark = pytest.mark.slow

RECOVERY_SECONDS = 15
CLIENTS = 4
REQUESTS_EACH = 200


def publish_other(repository):
    export_model(Telling(1), SCHEMA, repository / "other" / "1", devices="1xcpu")


def predict(client, model="ranker", price=5.0, **kwargs):
    return client.predict(model, dense={"price": [price]}, sparse={"item": [[3]]}, **kwargs)


def worker_states(process):
    """States of the worker threads, such as R (runnable) and S (sleeping), by thread."""
    states = {}
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # It has ended meanwhile.
            name, state = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            if name == "batch-worker":
                states[task.name] = state.split()[0]
    return states


def test_models_and_versions_share_as_many_workers_as_slots(tmp_path):
    publish(tmp_path, 1)
    publish(tmp_path, 2)
    publish_other(tmp_path)
    write_label(tmp_path, "ranker", "stable", 1)
    write_label(tmp_path, "ranker", "canary", 2)
    targets = [("ranker", ""), ("ranker", "canary"), ("other", "")]
    with serving(tmp_path, "--threads", 2, "--slots", 2) as server:
        workers = worker_states(server.process).keys()

        def send(number):
            model, label = targets[number % len(targets)]
            with Client(server.address, timeout_seconds=60) as client:
                for _ in range(REQUESTS_EACH):
                    predict(client, model, label=label)

        runnable = []
        with ThreadPoolExecutor(CLIENTS) as pool:
            sending = [pool.submit(send, number) for number in range(CLIENTS)]
            while not all(item.done() for item in sending):
                states = worker_states(server.process)
                runnable.append([states.get(worker) for worker in workers].count("R"))
            for call in sending:
                call.result()
        # A thread that a worker starts inside gRPC has the worker's name until it sets its own.
        deadline = time.monotonic() + RECOVERY_SECONDS
        while (left := worker_states(server.process).keys()) != workers:
            assert time.monotonic() < deadline, f"workers {workers} at first, now {left}"
            time.sleep(0.01)
    assert len(workers) == 2
    assert max(runnable) in (1, 2)


def test_second_model_recovers_from_a_looping_canary(tmp_path):
    """The only slot is in a batch that does not end."""
    publish(tmp_path, 1)
    publish_endless(tmp_path, 2, EndlessForOnePrice)
    publish_other(tmp_path)
    write_label(tmp_path, "ranker", "stable", 1)
    write_label(tmp_path, "ranker", "canary", 2)
    with (
        serving(tmp_path, *flags(), *metrics_flags()) as server,
        Client(server.address, timeout_seconds=60) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        looping = pool.submit(predict, client, price=ENDLESS_PRICE, label="canary")
        read_log_until(LOOP_BEGINS, server)
        assert predict(client, "other", timeout_seconds=60).version == 1
        with pytest.raises(NotFoundError):
            looping.result()  # UNAVAILABLE, which the client retries.
        assert predict(client).version == 1
        assert metric(server.metrics, "embershard_default_version") == 2
        with pytest.raises(urllib.error.HTTPError) as refusal:  # No worker is left to replace.
            urllib.request.urlopen(f"{server.metrics}healthz", timeout=60)
        assert (refusal.value.code, refusal.value.read()) == (503, b"failed\n")
