"""Facts about the columns of a sample."""

import pyarrow as pa
import pytest

from embershard.data.column_facts import facts_of, is_constant_in


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5, 7, 5, 7], True),
        ([5, 7, 6, 7], False),
        (["a", None, "a", None], True),
        (["a", None, "a", "b"], False),
        ([[1, 2], [], [1, 2], []], True),
        ([[1, 2], [], [2, 1], []], False),
        ([[1], [2, 3], [1], [2]], False),
        ([[1], None, [1], []], False),
    ],
    ids=str,
)
def test_values_are_constant_if_rows_of_a_group_have_equal_ones(values, expected):
    for groups in ([1, None, 1, None], ["x", "y", "x", "y"]):
        parts = [pa.array(values[:1]), pa.array(values[1:], pa.array(values).type)]
        column = pa.chunked_array(parts, pa.array(values).type)
        assert is_constant_in(pa.chunked_array([groups]), column) == expected


def test_lists_count_their_ids_and_have_lengths_as_numbers():
    facts = facts_of("items", pa.chunked_array([[["a", "b"], None, ["a"], []]]))
    assert (facts.type, facts.rows, facts.nulls, facts.distinct) == ("list", 4, 1, 2)
    assert facts.numbers.tolist() == [2, 1, 0]
