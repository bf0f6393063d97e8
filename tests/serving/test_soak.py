"""Clients that do all that they should not, beside some that do nothing wrong: for ten seconds, or
for SOAK_SECONDS (`make soak`: ten minutes). At the end every good answer was right, memory is where
it was, and the metrics add up.
"""

import os
import re
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.running import serving
from tests.serving.failures.busy import until
from tests.serving.soak_clients import (
    AGE_SECONDS,
    BATCH_EXAMPLES,
    CLIENTS,
    CONNECTIONS,
    MESSAGE_BYTES,
    REQUEST_IDS,
    WAIT_SECONDS,
    Soak,
)

SECONDS = float(os.environ.get("SOAK_SECONDS", "10"))
WARM_SHARE = 0.3
"""Share of the time that passes before memory is measured."""

GROWTH_BYTES = 32 << 20
NAMES_OF_PRIORITIES = ("background", "interactive")
REQUESTS = "embershard_requests_total"

OPTIONS = {
    "--threads": 1,
    "--metrics-port": 0,
    "--max-message-bytes": MESSAGE_BYTES,
    "--max-batch-examples": BATCH_EXAMPLES,
    "--max-request-ids": REQUEST_IDS,
    "--max-connections": CONNECTIONS,
    "--connection-age-seconds": AGE_SECONDS,
}


def scraped(url):
    """Values by name and by the last of the labels, which is the reason where there is one."""
    with urllib.request.urlopen(f"{url}metrics", timeout=WAIT_SECONDS) as answer:
        text = answer.read().decode()
    results = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model", "version")}
            results[sample.name, *labels.values()] = sample.value
    return results


def resident_bytes(process):
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])


def is_idle(figures):
    waiting = [
        value for (name, *_), value in figures.items() if name.startswith("embershard_queued_")
    ]
    assert len(waiting) == 4
    under_way = figures["embershard_in_flight_requests",] + figures["embershard_open_streams",]
    return not any(waiting) and under_way == 0


def assert_adds_up(figures, done):
    ended = {
        (code, reason): value
        for code, reason in {(key[1], key[3]) for key in figures if key[0] == REQUESTS}
        if (
            value := sum(
                figures[REQUESTS, code, priority, reason] for priority in NAMES_OF_PRIORITIES
            )
        )
    }
    assert all(figures[REQUESTS, "OK", priority, ""] for priority in NAMES_OF_PRIORITIES)
    ok = ended.pop(("OK", ""))
    # A request that was given up or had a short deadline may have been answered.
    assert done["good"] <= ok <= done["good"] + done["doubtful"]
    assert ok == figures["nv_inference_request_success",]
    assert ok == figures["embershard_request_seconds_count",]
    assert figures["embershard_examples_total",] == figures["nv_inference_count",]
    refused = {key: count for key, count in ended.items() if key[0] == "INVALID_ARGUMENT"}
    assert sum(refused.values()) == done["refused"]
    others = ended.keys() - refused.keys()
    assert others <= {
        ("DEADLINE_EXCEEDED", "expired"),
        ("DEADLINE_EXCEEDED", "abandoned"),
        ("RESOURCE_EXHAUSTED", "deadline_infeasible"),
    }
    assert ok - done["good"] + sum(ended[key] for key in others) <= done["doubtful"]
    failures = [
        value for (name, *_), value in figures.items() if name == "nv_inference_request_failure"
    ]
    assert sum(failures) == sum(ended.values())
    assert ok <= figures["embershard_request_examples_count",]
    # A request may be given up while it runs, and each chunk of a cut request counts.
    assert figures["embershard_batch_requests_sum",] >= ok
    run = figures["embershard_batch_examples_sum",]
    assert figures["embershard_examples_total",] <= run
    assert run <= figures["embershard_request_examples_sum",]
    # Clients that do not count it may be turned away too, and try again.
    assert 0 < done["turned-away"] <= figures["embershard_connections_refused_total",]


@pytest.mark.slow
@pytest.mark.timeout(120 + 2 * SECONDS)
def test_good_clients_are_served_right_whatever_others_do(repository, local):
    options = [word for option in OPTIONS.items() for word in option]
    with serving(repository, *options) as server:
        metrics = server.metrics
        soak = Soak(server.address, local)
        threads = [
            threading.Thread(target=soak.run, args=(name, client))
            for name, client in CLIENTS.items()
        ]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        soak.over.wait(WARM_SHARE * SECONDS)
        until(lambda: soak.over.is_set() or all(soak.done[name] for name in CLIENTS))
        warm = resident_bytes(server.process.pid)
        soak.over.wait(started + SECONDS - time.monotonic())
        soak.over.set()
        for thread in threads:
            thread.join()
        assert soak.errors == []
        until(lambda: is_idle(scraped(metrics)))
        grown = resident_bytes(server.process.pid) - warm
        figures = scraped(metrics)
    assert all(soak.done[name] for name in CLIENTS), soak.done
    assert soak.done["told-to-go"]
    assert grown <= GROWTH_BYTES
    assert_adds_up(figures, soak.done)
    print(f"{dict(soak.done)}; memory grew by {grown >> 10} KiB")
