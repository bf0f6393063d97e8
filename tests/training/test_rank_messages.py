"""Ranks that end together say the same thing once, and a lost rank is named."""

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


def printed(monkeypatch, *args):
    """What each rank prints. LOST: its collective failed. None: it says nothing."""
    monkeypatch.setattr(ranks, "MESSAGE_WAIT_SECONDS", 2.0 if None in args else 60.0)
    store, result = dist.HashStore(), dict.fromkeys(range(len(args)))

    def end(rank, said):
        text = cause_of(RuntimeError(GLOO)) if said is LOST else said
        result[rank] = shared_message(store, rank, len(args), text, is_lost=said is LOST)

    threads = [
        threading.Thread(target=end, args=value)
        for value in enumerate(args)
        if value[1] is not None
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(result.values())


@pytest.mark.parametrize(
    ("value", "expected"),
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
def test_what_ranks_print_that_end_together(monkeypatch, value, expected):
    assert printed(monkeypatch, *value) == expected


def test_a_late_rank_is_silent_if_another_printed_the_same(monkeypatch):
    monkeypatch.setattr(ranks, "MESSAGE_WAIT_SECONDS", 0.05)
    store = dist.HashStore()
    assert shared_message(store, 1, 2, "interrupted") == "rank 1: interrupted"
    assert shared_message(store, 0, 2, "interrupted") is None


def test_an_error_of_another_library_is_no_lost_rank():
    assert cause_of(RuntimeError("shape '[2]' is invalid")) is None


def test_a_rank_whose_store_is_gone_says_it_itself():
    class Gone:
        def set(self, key, value):
            raise dist.DistNetworkError("Broken pipe")

    env = SimpleNamespace(rank=1, world_size=2)
    alone = ranks.Ranks(env=env, job="job", store=Gone())
    lost = LostRankError("rank 0 ended", cause="a collective failed")
    assert alone.final_message(lost, "unused") == "rank 1: a collective failed"
    assert alone.final_message(KeyboardInterrupt(), "interrupted") == "rank 1: interrupted"
