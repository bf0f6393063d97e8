"""Ranks whose collective failed find out which ranks are missing."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from embershard import collectives
from embershard.collectives import collective, missing_ranks
from embershard.errors import LostRankError
from embershard.sharding.input_dist import InputDist
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
    for limit in ("TIMEOUT_SECONDS", "CLOSED_SECONDS"):
        monkeypatch.setattr(collectives, limit, 3.0 if None in causes else 60.0)
    store, actual = dist.HashStore(), [None] * len(causes)

    def fail(rank):
        actual[rank] = missing_ranks(store, rank, range(len(causes)), causes[rank])

    threads = [
        threading.Thread(target=fail, args=(rank,))
        for rank, cause in enumerate(causes)
        if cause is not None
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert actual == expected


def fail_twice(env):
    """This rank's messages of two failed collectives. Rank 1 does not enter the first, rank 0 not
    the second. All ranks enter another one after each failure."""
    messages = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "TIMEOUT_SECONDS", 1.0)
        for absent in (1, 0):
            group = dist.new_group([0, 1], timeout=timedelta(seconds=1))
            if env.rank == absent:
                messages.append("")
            elif env.rank < 2:
                with pytest.raises(LostRankError) as raised, collective(group):
                    dist.barrier(group=group)
                messages.append(str(raised.value).partition(": T")[0])
            with collective(env.process_group):
                dist.barrier(group=env.process_group)
    return messages


def start_after_failure(env):
    """Checks twice if the store says that rank 0 failed: after an exchange starts, and after it
    ends."""
    store, key = _get_default_store(), "embershard/lost/0"
    group = dist.new_group([0, 1], timeout=timedelta(seconds=1))  # All workers must create it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collectives, "TIMEOUT_SECONDS", 1.0)
        if env.rank == 0:
            with pytest.raises(LostRankError), collective(group):
                dist.barrier(group=group)
    exchange = InputDist(env, [])
    started = store.check([key]) if env.rank == 0 else None
    exchange.send()
    return started, store.check([key]) if env.rank == 0 else None


def test_an_exchange_takes_a_failure_back_once_it_has_ended(workers):
    assert workers.run(4, start_after_failure) == [(True, False), *[(None, None)] * 3]


def test_a_second_failure_names_the_rank_that_is_missing_then(workers):
    first, second, *_ = workers.run(4, fail_twice)
    assert first == ["rank 0: a collective failed; rank 1 ended or did not enter it", ""]
    assert second == ["", "rank 1: a collective failed; rank 0 ended or did not enter it"]
