"""How tables are stored, as text."""

import pytest

from embershard.errors import ExportError
from embershard.export import parse_weights


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("int8", "int8", id="one-type"),
        pytest.param("users=int8,items=int4", {"users": "int8", "items": "int4"}, id="patterns"),
        pytest.param(" big_* = int4 , *=fp16", {"big_*": "int4", "*": "fp16"}, id="spaces"),
        pytest.param("wide=fp32,*=int8", {"wide": "fp32", "*": "int8"}, id="fp32"),
    ],
)
def test_weights_as_text(text, expected):
    assert parse_weights(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "expected one of int8, int4, fp16, fp32, got ''", id="empty"),
        pytest.param("int9", "got 'int9'", id="unknown"),
        pytest.param("users=int8,int4", "<table pattern>=<type>, got 'int4'", id="no-pattern"),
        pytest.param("=int8", "<table pattern>=<type>, got '=int8'", id="empty-pattern"),
        pytest.param("users=", "got ''", id="no-type"),
        pytest.param("users=int8,users=int4", "pattern 'users' twice", id="twice"),
    ],
)
def test_weights_as_text_that_cannot_be_read_are_refused(text, message):
    with pytest.raises(ExportError, match=message):
        parse_weights(text)
