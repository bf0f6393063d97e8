"""The harness: interleaving, the interval, the void rule, sides in other processes."""

import math
import sys

import pytest

from benchmarks.children import ChildEndedError, child_side, limit_of
from benchmarks.harness import (
    About,
    Blocks,
    Row,
    Series,
    Side,
    Work,
    compare,
    interval,
    loop,
    paired_row,
)
from benchmarks.watch import Limit, Watch

ABOUT = About(name="t/t", what="", unit="units/s")


def counted(name, seconds, log):
    """A side whose every block takes ``seconds`` for one unit, and is written down."""

    def block(_):
        log.append(name)
        return Work(1, seconds)

    return Side(name=name, block=block)


def watched(before, after):
    """A watch over nothing, whose limit went from one value to another."""
    values = iter([before, after])
    with Watch(Limit(name="limit", measure=lambda: next(values))) as watch:
        pass
    return watch


def test_blocks_alternate_a_b_b_a_after_a_warm_up_of_each():
    log = []
    compare(
        ABOUT,
        ours=counted("a", 1.0, log),
        theirs=counted("b", 2.0, log),
        limit=Limit(name="limit", measure=lambda: 8.0),
        blocks=Blocks(pairs=4),
    )
    assert "".join(log) == "ab" + "abbaabba"


def test_the_ratio_is_the_median_of_pairs_not_the_ratio_of_medians():
    row = paired_row(
        ABOUT, Series("a", [1, 4, 9, 10, 10]), Series("b", [1, 2, 3, 5, 8]), watch=watched(8, 8)
    )
    assert row.ratio == 2  # of 1, 2, 3, 2 and 1.25
    assert row.value == 9
    assert row.their_value == 3


def test_the_interval_is_that_of_every_resample_drawn_by_hand():
    # A draw is 1, 2 or 4 with a chance of 4/12 each. The median of 12 draws is 1 where at least 7
    # of them are, with a chance of 6.6 %, and 4 as often: both tails of 2.5 % lie inside.
    tail = sum(math.comb(12, ones) * 2 ** (12 - ones) for ones in range(7, 13)) / 3**12
    assert 0.066 < tail < 0.067
    assert interval([1, 2, 4] * 4) == (1, 4)


def test_fewer_than_ten_pairs_give_their_least_and_largest_ratio():
    nine = [5.0] * 7 + [1.0, 9.0]
    assert interval(nine) == (1, 9)
    # Of ten: half of the draws are the outlier with a chance of 0.2 %, far below a tail.
    assert interval([*nine, 5.0]) == (5, 5)


@pytest.mark.parametrize(("pairs", "has"), [(9, False), (10, True)], ids=["nine", "ten"])
def test_a_row_says_how_many_pairs_it_has_and_whether_its_ends_are_an_interval(pairs, has):
    ours, theirs = Series("a", [2.0] * pairs), Series("b", [1.0] * pairs)
    row = paired_row(ABOUT, ours, theirs, watch=watched(8, 8))
    assert (row.pairs, row.has_interval) == (pairs, has)


def test_the_interval_narrows_to_the_middle_where_outliers_are_rare():
    # A median of 99 draws reaches one of two outliers with a chance below 1e-50.
    assert interval([2.0] * 97 + [1.0, 100.0]) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("after", "void"),
    [
        pytest.param(114.0, False, id="14-percent-faster"),
        pytest.param(116.0, True, id="16-percent-faster"),
        pytest.param(86.0, False, id="14-percent-slower"),
        pytest.param(84.0, True, id="16-percent-slower"),
    ],
)
def test_a_row_is_void_when_its_limit_moved_by_more_than_15_percent(after, void):
    measured = iter([100.0, after])
    row = compare(
        ABOUT,
        ours=counted("a", 0.02, []),
        limit=Limit(name="limit", measure=lambda: next(measured)),
        blocks=Blocks(pairs=2),
    )
    assert row.void == void
    assert row.limit == (100 + after) / 2
    assert row.limit_share == pytest.approx(50 / row.limit)


def test_a_row_without_a_limit_has_no_share_and_is_void_when_memory_speed_moved():
    row = Row(name="t/t", what="", unit="s", ours="a", value=1.0, moved=0.16)
    assert row.limit_share is None
    assert row.void


def test_a_watch_measures_before_and_after_and_tells_memory_speed_from_a_limit():
    order = []
    with Watch(Limit(name="limit", measure=lambda: order.append("probe") or 8.0)) as watch:
        order.append("work")
    assert order == ["probe", "work", "probe"]
    assert (watch.before, watch.after, watch.moved) == (8, 8, 0)
    with Watch() as watch:
        pass
    assert watch.limit is None
    assert watch.before > 0
    assert watch.after > 0


def test_a_loop_works_for_the_time_it_is_given_and_counts_units():
    work = loop("a", lambda: 3).block(0.01)
    assert work.seconds >= 0.01
    assert work.units > 0
    assert work.units % 3 == 0


CHILD = "from benchmarks.child import answer; print('loading'); answer(lambda: 5)"


def test_a_child_answers_blocks_from_its_own_process():
    with child_side("child", [sys.executable, "-c", CHILD]) as side:
        work = side.block(0.01)
    assert work.seconds >= 0.01
    assert work.units > 0
    assert work.units % 5 == 0


def test_several_children_work_at_once_and_their_units_add_up():
    # Each child says 7 units in one second, whatever it is asked.
    script = "print('ready', flush=True)\nwhile input(): print(7, 1, flush=True)"
    with child_side("child", [sys.executable, "-c", script], cores=[{0}, {0}]) as side:
        assert side.block(0.01) == Work(14, 1)


def test_a_limit_is_the_best_of_its_blocks():
    works = iter([Work(1, 1), Work(9, 3), Work(4, 2), Work(1, 2)])
    side = Side(name="a", block=lambda _: next(works))
    assert limit_of(side).measure() == 3


def test_a_child_that_ends_before_it_is_ready_is_named_with_its_status():
    with (
        pytest.raises(ChildEndedError, match="peer: the process ended with 3"),
        child_side("peer", [sys.executable, "-c", "raise SystemExit(3)"]),
    ):
        pass


def test_a_child_that_ends_instead_of_answering_is_named():
    script = "print('ready', flush=True); input(); raise SystemExit(4)"
    with (
        pytest.raises(ChildEndedError, match="peer: the process ended with 4"),
        child_side("peer", [sys.executable, "-c", script]) as side,
    ):
        side.block(0.01)
