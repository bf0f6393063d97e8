"""The search for the highest rate, with a simulated server."""

import numpy as np
import pytest

from benchmarks.loads import Load
from benchmarks.objective import HighestRate, lowest_rate
from benchmarks.packages import Requests
from benchmarks.servers import Serve
from embershard.bench import Objective
from tests.bench.outcomes import Server

SEARCH = HighestRate(
    load=Load(server=Serve(), requests=Requests(), seconds=5.0, all_ok=False),
    objective=Objective(99, 0.010),
)


@pytest.fixture
def search(monkeypatch):
    """A function that makes a server with a capacity, and a block of the search that loads it."""

    def with_capacity(capacity):
        server = Server(capacity)
        monkeypatch.setattr(Load, "started", lambda *_: server.run)
        return SEARCH.start(None, None), server

    return with_capacity


def test_a_search_begins_closed_and_returns_the_rate_that_held(search):
    block, server = search(1000)
    result = block(None)
    assert (server.loads[0].in_flight, server.loads[0].rate) == (32, None)
    assert server.loads[1].rate == 500
    assert result["held"] == 1
    assert 952 < result["requests_per_second"] <= 1000


def test_the_next_search_starts_at_nine_tenths_of_the_last_rate(search):
    block, server = search(1000)
    first = block(None)["requests_per_second"]
    before = len(server.loads)
    block(None)
    assert server.loads[before].rate == pytest.approx(0.9 * first)


def test_where_nothing_holds_the_lowest_rate_tried_is_given(search):
    block, server = search(0.1)
    result = block(None)
    assert result["held"] == 0
    assert result["requests_per_second"] == min(load.rate for load in server.loads if load.rate)


def test_no_two_runs_have_the_same_arrival_times(search):
    block, server = search(1000)
    block(None)
    block(None)
    seeds = [load.seed for load in server.loads]
    assert len(set(seeds)) == len(seeds)


def test_the_lowest_rate_that_held_is_taken_of_both_checkouts():
    def searched(rates, held):
        return {"requests_per_second": np.array(rates), "held": np.array(held)}

    both = {
        "a": searched([50.0, 60.0], [1.0, 1.0]),
        "a, other checkout": searched([40.0, 10.0], [1.0, 0.0]),
    }
    assert lowest_rate(both) == 40
    assert lowest_rate({"a": searched([50.0, 10.0], [0.0, 0.0])}) == 10
