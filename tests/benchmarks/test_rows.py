"""Checks of every benchmark's declaration, without running it."""

from collections import defaultdict

import numpy as np
import pytest

from benchmarks.checkout import THIS, Checkout
from benchmarks.harness import Bench, load_benchmarks
from benchmarks.servers import Serve
from benchmarks.triton_models import InTriton

BENCHMARKS = load_benchmarks()

COMPARED = {
    "headline_bf16", "mlperf_bf16", "offline", "lookup", "lookup_sizes", "front_end", "batching",
    "idle", "stream", "swaps", "swaps_200", "shadows", "overload_long", "triton", "two_models",
    "planner",
}  # fmt: skip
"""Benchmarks that compare two checkouts."""


class DeclaredOnly(Bench):
    """Records the comparisons of a benchmark, and starts nothing."""

    def __init__(self, name, *, other=None):
        super().__init__(name, other=other)
        self.compared = []

    def compare(self, what, sides, ratios, *, blocks=16, derived=None, warm_up=True):
        self.compared.append((sides, ratios, derived or {}))
        values = {"requests_per_second": np.array([100.0]), "held": np.array([1.0])}
        return dict.fromkeys(sides, values)

    def once(self, side):
        return defaultdict(lambda: 10.0)


def declared(name, other=None):
    bench = DeclaredOnly(name, other=other)
    BENCHMARKS[name].measure(bench)
    return bench.compared


def test_every_row_that_compares_checkouts_exists():
    assert set(BENCHMARKS) >= COMPARED


@pytest.mark.parametrize("name", sorted(BENCHMARKS))
def test_a_row_names_sides_that_it_declares_and_each_row_once(name):
    compared = declared(name)
    assert compared
    for sides, ratios, derived in compared:
        assert ratios
        for ratio in ratios:
            assert {ratio.ours, ratio.theirs} <= {*sides, *derived, ""}
    names = [ratio.name for _, ratios, _ in compared for ratio in ratios]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", sorted(COMPARED))
def test_a_row_that_compares_checkouts_has_a_side_of_embershards(name):
    for sides, ratios, _ in declared(name, other=Checkout(THIS.root)):
        assert any(ratio.ours in sides and not sides[ratio.ours].is_peer for ratio in ratios)


def test_row_triton_gives_neither_side_options():
    sides = [side for sides, _, _ in declared("triton") for side in sides.values()]
    assert {type(side.server) for side in sides} == {Serve, InTriton}
    for side in sides:
        assert side.server == type(side.server)()
