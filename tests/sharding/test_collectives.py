"""Ranks whose collective failed find out which ranks are missing."""

import threading

import torch.distributed as dist

from embershard.collectives import missing_ranks
from tests.cases import cases

CLOSED, TIMED_OUT = "Connection closed by peer [::1]:5", "Timed out waiting 5000ms for recv"


@cases(
    ("causes", "expected"),
    {
        "one-missing": ([TIMED_OUT, None, CLOSED], [[1], None, [1]]),
        "none-missing": ([CLOSED, TIMED_OUT], [[], []]),
        "all-others-missing": ([CLOSED, None, None], [[1, 2], None, None]),
    },
)
def test_ranks_whose_collective_did_not_fail_are_missing(monkeypatch, causes, expected):
    monkeypatch.setattr("embershard.collectives.TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr("embershard.collectives.CLOSED_SECONDS", 0.5)
    store, found = dist.HashStore(), [None] * len(causes)

    def fail(rank):
        found[rank] = missing_ranks(store, rank, range(len(causes)), causes[rank])

    threads = [
        threading.Thread(target=fail, args=(rank,))
        for rank, cause in enumerate(causes)
        if cause is not None
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
