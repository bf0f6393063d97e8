"""Ranks that end together print a shared message once, and a lost rank is named."""

import threading
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from embershard.collectives import cause_of
from embershard.errors import LostRankError
from embershard.training import ranks
from embershard.training.ranks import shared_message

LOST = object()
GLOO = "[/third_party/gloo/pair.cc:553] Connection closed by peer [::1]:5. This is typically so."


def printed(monkeypatch, *messages):
    """Text that each rank prints. Arguments are the ranks' messages. LOST: the rank's collective
    failed. None: the rank sends nothing."""
    monkeypatch.setattr(ranks, "MESSAGE_WAIT_SECONDS", 2.0 if None in messages else 60.0)
    store, result = dist.HashStore(), dict.fromkeys(range(len(messages)))

    def end(rank, message):
        text = cause_of(RuntimeError(GLOO)) if message is LOST else message
        result[rank] = shared_message(store, rank, len(messages), text, is_lost=message is LOST)

    threads = [
        threading.Thread(target=end, args=(rank, message))
        for rank, message in enumerate(messages)
        if message is not None
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(result.values())


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(["full", "full"], ["full", None], id="all-the-same"),
        pytest.param(["a", "b", "b"], ["rank 0: a", "ranks 1, 2: b", None], id="different"),
        pytest.param(
            ["full", LOST, LOST], ["rank 0: full", None, None], id="a-cause-and-its-result"
        ),
        pytest.param([None, "full"], [None, "rank 1: full"], id="a-rank-that-says-nothing"),
        pytest.param(
            [LOST, None, LOST],
            [
                "ranks 0, 2: a collective failed; rank 1 ended or did not enter it: "
                "Connection closed by peer [::1]:5",
                None,
                None,
            ],
            id="a-killed-rank",
        ),
    ],
)
def test_what_ranks_print_that_end_together(monkeypatch, messages, expected):
    assert printed(monkeypatch, *messages) == expected


def test_a_late_rank_is_silent_if_another_printed_the_same(monkeypatch):
    monkeypatch.setattr(ranks, "MESSAGE_WAIT_SECONDS", 0.05)
    store = dist.HashStore()
    assert shared_message(store, 1, 2, "interrupted") == "rank 1: interrupted"
    assert shared_message(store, 0, 2, "interrupted") is None


def test_an_error_of_another_library_is_no_lost_rank():
    assert cause_of(RuntimeError("shape '[2]' is invalid")) is None


def test_a_rank_whose_store_is_gone_says_it_itself():
    class LostStore:
        def set(self, key, value):
            raise dist.DistNetworkError("Broken pipe")

    env = SimpleNamespace(rank=1, world_size=2)
    alone = ranks.Ranks(env=env, job="job", store=LostStore())
    lost = LostRankError("rank 0 ended", cause="a collective failed")
    assert alone.final_message(lost, "unused") == "rank 1: a collective failed"
    assert alone.final_message(KeyboardInterrupt(), "interrupted") == "rank 1: interrupted"
