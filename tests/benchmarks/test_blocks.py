"""The order of blocks of several sides."""

from benchmarks.blocks import interleaved


def test_sides_warm_up_once_then_take_turns_in_both_directions():
    ran = []

    def side(name):
        def run():
            ran.append(name)
            return name, len(ran)

        return run

    results, moved = interleaved([side("a"), side("b"), side("c")], blocks=2)

    assert "".join(ran) == "abc" + "abc" + "cba"
    assert results == [[("a", 4), ("a", 9)], [("b", 5), ("b", 8)], [("c", 6), ("c", 7)]]
    assert moved >= 0
