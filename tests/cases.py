"""Helpers for tables of test cases and for expected errors."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest


def cases(names: str | Sequence[str], table: Mapping[str, object]) -> pytest.MarkDecorator:
    """Runs a test for each case of a table from ids to the argument or the tuple of arguments."""
    return pytest.mark.parametrize(names, list(table.values()), ids=list(table))


@contextmanager
def refused(error: type[Exception], *parts: object) -> Iterator[None]:
    """Expects an error of this class, whose message has all parts, such as a field and a value."""
    with pytest.raises(error) as raised:
        yield
    message = str(raised.value)
    assert [part for part in parts if str(part) not in message] == [], message
