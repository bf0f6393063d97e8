"""The order of blocks of several sides."""

from benchmarks.blocks import interleaved
from benchmarks.watch import Limit


def test_sides_warm_up_once_then_take_turns_in_both_directions():
    ran = []

    def side(name):
        def run():
            ran.append(name)
            return name, len(ran)

        return run

    results, watch = interleaved([side("a"), side("b"), side("c")], blocks=2)

    assert "".join(ran) == "abc" + "abc" + "cba"
    assert results == [[("a", 4), ("a", 9)], [("b", 5), ("b", 8)], [("c", 6), ("c", 7)]]
    assert watch.moved >= 0


def test_the_limit_is_measured_before_the_first_block_and_after_the_last():
    ran = []
    limit = Limit(name="limit", measure=lambda: ran.append("limit") or 2.0)

    _, watch = interleaved([lambda: ran.append("a")], blocks=2, limit=limit, warm_up=False)

    assert ran == ["limit", "a", "a", "limit"]
    assert watch.limit is limit
