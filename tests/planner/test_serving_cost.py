"""Constraints of serving plans."""

from embershard.errors import InputError
from embershard.planner import parse_constraints
from tests.cases import cases, refused


def test_constraints_of_one_table_are_what_all_of_them_allow():
    assert parse_constraints(["a=table,column", "b=replicate", "a=column,row"]) == {
        "a": ("column",),
        "b": ("replicate",),
    }


@cases(
    ("texts", "parts"),
    {
        "contradiction": (["a=table", "a=column"], ["table 'a'", "table and column"]),
        "no-cut": (["a"], ["got 'a'"]),
        "unknown": (["a=diagonal"], ["got 'a=diagonal'"]),
    },
)
def test_bad_constraints_are_refused(texts, parts):
    with refused(InputError, *parts):
        parse_constraints(texts)
