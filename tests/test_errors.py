"""Characters in error messages."""

import pickle

import pytest

from embershard.errors import EmbershardError, NotFoundError, OverloadedError

HOSTILE = "no model 'a\x1b[31m\x07\x7f\x9b\r\u2028\u202e\ud800é'"
ESCAPED = r"no model 'a\u001b[31m\u0007\u007f\u009b\r\u2028\u202e\ud800é'"


@pytest.mark.parametrize("kind", [EmbershardError, NotFoundError, OverloadedError])
def test_control_characters_of_a_message_are_escaped(kind):
    assert str(kind(HOSTILE)) == ESCAPED
    assert str(kind(ESCAPED)) == ESCAPED


def test_line_feeds_and_tabs_of_a_message_stay():
    assert str(EmbershardError("two\n\tlines")) == "two\n\tlines"


def test_an_error_is_the_same_in_another_process():
    assert str(pickle.loads(pickle.dumps(NotFoundError(HOSTILE)))) == ESCAPED
