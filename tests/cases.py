"""Parametrized tests as tables, and what a refusal says."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest


def cases(names: str | Sequence[str], table: Mapping[str, object]) -> pytest.MarkDecorator:
    """Runs a test with each case of a table: its id, and the argument or the tuple of arguments."""
    return pytest.mark.parametrize(names, list(table.values()), ids=list(table))


@contextmanager
def refused(error: type[Exception], *parts: object) -> Iterator[None]:
    """The block raises this class, and its message has each part: a place, a field or a value."""
    with pytest.raises(error) as raised:
        yield
    message = str(raised.value)
    assert [part for part in parts if str(part) not in message] == [], message
