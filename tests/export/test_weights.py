"""The text that says how tables are stored."""

from embershard.errors import ExportError
from embershard.export import parse_weights
from tests.cases import cases, refused


@cases(
    ("text", "expected"),
    {
        "one-type": ("int8", "int8"),
        "patterns": ("users=int8,items=int4", {"users": "int8", "items": "int4"}),
        "spaces": (" big_* = int4 , *=fp16", {"big_*": "int4", "*": "fp16"}),
        "fp32": ("wide=fp32,*=int8", {"wide": "fp32", "*": "int8"}),
    },
)
def test_weights_as_text(text, expected):
    assert parse_weights(text) == expected


@cases(
    ("text", "received"),
    {
        "empty": ("", "got ''"),
        "unknown": ("int9", "got 'int9'"),
        "no-pattern": ("users=int8,int4", "<table pattern>=<type>, got 'int4'"),
        "empty-pattern": ("=int8", "<table pattern>=<type>, got '=int8'"),
        "no-type": ("users=", "got ''"),
        "twice": ("users=int8,users=int4", "pattern 'users' twice"),
    },
)
def test_weights_as_text_that_cannot_be_read_are_refused(text, received):
    with refused(ExportError, received):
        parse_weights(text)
