"""Parametrized tests as tables."""

from collections.abc import Mapping, Sequence

import pytest


def cases(names: str | Sequence[str], table: Mapping[str, object]) -> pytest.MarkDecorator:
    """Runs a test with each case of a table: its id, and the argument or the tuple of arguments."""
    return pytest.mark.parametrize(names, list(table.values()), ids=list(table))
