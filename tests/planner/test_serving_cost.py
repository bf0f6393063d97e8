"""Constraints of plans of serving."""

import pytest

from embershard.errors import InputError
from embershard.planner import parse_constraints


def test_constraints_of_one_table_are_what_all_of_them_allow():
    assert parse_constraints(["a=table,column", "b=replicate", "a=column,row"]) == {
        "a": ("column",),
        "b": ("replicate",),
    }


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        pytest.param(
            ["a=table", "a=column"],
            "table 'a': table and column contradict each other",
            id="contradiction",
        ),
        pytest.param(["a"], "expected TABLE=CUT or TABLE=CUT,CUT .* got 'a'", id="no-cut"),
        pytest.param(
            ["a=diagonal"],
            "with cuts of table, column, row, replicate, got 'a=diagonal'",
            id="unknown",
        ),
    ],
)
def test_bad_constraints_are_refused(texts, words):
    with pytest.raises(InputError, match=words):
        parse_constraints(texts)
