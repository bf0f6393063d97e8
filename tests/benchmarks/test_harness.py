"""The harness: interleaved and derived sides, two checkouts, and shared servers."""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from benchmarks.checkout import THIS, Checkout, Command
from benchmarks.harness import Bench, Ratio, Row, Session, interleave
from benchmarks.local import Child
from benchmarks.statistics import Bound
from tests.cases import refused

CHILD = """
import os
from benchmarks.child import serve_blocks
value = float(os.environ.get("VALUE_OF_THE_OTHER", 3.0))
serve_blocks(lambda seconds: {"units_per_second": value})
"""


@dataclass
class Fixed:
    """A side whose blocks end at once and return one value."""

    name: str
    value: float
    log: list
    is_peer: bool = False
    started: list = field(default_factory=list)

    def start(self, session, checkout):
        self.started.append(checkout)

        def block(seconds):
            self.log.append(self.name)
            return {"units_per_second": self.value, "p99_us": 1 / self.value}

        return block


@pytest.fixture
def bench():
    return Bench("b")


def test_sides_warm_up_once_then_alternate_in_both_directions(bench):
    log = []
    sides = {name: Fixed(name, 1.0, log) for name in "abc"}
    bench.compare("w", sides, [], blocks=3)
    assert "".join(log) == "abc" + "abc" + "cba" + "abc"


def test_values_are_kept_block_by_block():
    values = iter([1.0, 2.0, 3.0])
    result = interleave({"a": lambda seconds: {"x": next(values) * seconds}}, 3, 10.0)
    assert result["a"]["x"].tolist() == [10, 20, 30]


def test_a_row_compares_two_sides(bench):
    sides = {"a": Fixed("a", 6.0, []), "b": Fixed("b", 2.0, [])}
    bench.compare("w", sides, [Ratio("r", "units_per_second", "a", "b")], blocks=2)
    [row] = bench.rows
    assert (row.name, row.ours, row.theirs, row.estimate.ratio) == ("b/r", "a", "b", 3)
    assert row.notes == {"p99_us": 1 / 6}


@pytest.mark.parametrize(("theirs", "figure"), [("c", ""), ("b", "units_per_hour")])
def test_a_row_beside_what_was_not_measured_is_an_error(bench, theirs, figure):
    sides = {name: Fixed(name, 1.0, []) for name in "ab"}
    with refused(KeyError, figure or theirs):
        bench.compare("w", sides, [Ratio("r", "units_per_second", "a", theirs, figure)], blocks=1)


def test_a_row_compares_two_figures_of_one_side(bench):
    ratio = Ratio("r", "units_per_second", "a", "a", their_figure="p99_us")
    bench.compare("w", {"a": Fixed("a", 2.0, [])}, [ratio], blocks=2)
    assert bench.rows[0].estimate.ratio == 4


def test_a_derived_side_is_computed_block_by_block(bench):
    sides = {"a": Fixed("a", 6.0, []), "b": Fixed("b", 2.0, [])}
    x = "units_per_second"
    derived = {"a - b": lambda of: {x: of["a"][x] - of["b"][x]}}
    bench.compare("w", sides, [Ratio("r", x, "a - b")], blocks=2, derived=derived)
    assert bench.rows[0].values.tolist() == [4, 4]
    assert bench.rows[0].estimate is None


def test_a_row_with_fewer_than_ten_pairs_is_not_judged():
    values = np.full(9, 1.0)
    row = Row(name="b/r", what="", figure="x_per_second", ours="a", values=values, theirs="b",
              their_values=2 * values, bound=Bound(0.97))  # fmt: skip
    assert not row.failed
    ten = np.full(10, 1.0)
    assert replace(row, values=ten, their_values=2 * ten).failed


def test_another_checkout_runs_our_sides_interleaved_and_no_peer(bench):
    log = []
    ours, peer, plain = Fixed("a", 6.0, log), Fixed("p", 2.0, log, is_peer=True), Fixed("c", 1, log)
    bench.other = Checkout(THIS.root.parent)
    x = "units_per_second"
    ratios = [Ratio("r", x, "a", "p"), Ratio("again", x, "a", "c"), Ratio("of_peer", x, "p", "a")]
    comparison = bench.compare("w", {"a": ours, "p": peer, "c": plain}, ratios, blocks=2)
    assert ours.started == [THIS, bench.other]
    assert peer.started == plain.started == []
    assert sorted(comparison) == ["a", "a, other checkout"]
    rows = [(row.name, row.ours, row.theirs) for row in bench.rows]
    assert rows == [("b/r", "a", "a, other checkout")]


@pytest.mark.parametrize(
    ("figure", "bound"),
    [("units_per_second", Bound(at_least=0.97)), ("p99_us", Bound(at_most=1 / 0.97))],
)
def test_another_checkout_bounds_rates_below_and_latencies_above(bench, figure, bound):
    bench.other = Checkout(THIS.root.parent)
    bench.compare("w", {"a": Fixed("a", 6.0, [])}, [Ratio("r", figure, "a")], blocks=2)
    assert bench.rows[0].bound == bound


def test_each_checkout_runs_with_its_own_python(bench, tmp_path):
    """The Python of the other checkout is a script that sets a variable."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nVALUE_OF_THE_OTHER=2 exec {THIS.python} "$@"\n')
    python.chmod(0o755)
    bench.other = Checkout.at(tmp_path)
    side = Child(command=lambda checkout: Command((checkout.python, "-c", CHILD)), is_peer=False)
    bench.compare("w", {"a": side}, [Ratio("r", "units_per_second", "a")], blocks=1)
    [row] = bench.rows
    assert row.estimate.ratio == 1.5
    assert not row.failed


def test_once_gives_the_figures_of_a_block_after_a_warm_up(bench):
    log = []
    assert bench.once(Fixed("a", 4.0, log))["units_per_second"] == 4
    assert log == ["a", "a"]


def test_equal_keys_share_a_start_until_the_session_ends():
    log = []

    @contextmanager
    def server():
        log.append("start")
        yield len(log)
        log.append("end")

    with Session() as session:
        assert session.shared(("x", 1), server) == session.shared(("x", 1), server) == 1
        assert session.shared(("x", 2), server) == 2
        assert log == ["start", "start"]
    assert log == ["start", "start", "end", "end"]
