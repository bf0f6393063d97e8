"""Short forms: what they mean, and what is refused."""

import pytest

from embershard.bench import parse_examples, parse_ids, parse_spans
from embershard.errors import InputError


def test_examples():
    assert parse_examples("8") == ((8, 8),)
    assert parse_examples("1..200") == ((1, 200),)
    assert len(parse_examples("mlperf")) == 20


@pytest.mark.parametrize("text", ["0", "", "3..2", "a", "1..", "MLPERF", "-1..2"])
def test_other_examples_are_refused(text):
    with pytest.raises(InputError):
        parse_examples(text)


def test_ids():
    assert parse_ids("uniform") is None
    assert parse_ids("zipf:0.9") == 0.9


@pytest.mark.parametrize("text", ["zipf", "zipf:", "zipf:0", "zipf:nan", "zipf:x", "zipf:21", "u"])
def test_other_ids_are_refused(text):
    with pytest.raises(InputError):
        parse_ids(text)


def test_spans_are_for_all_or_for_one_and_the_last_counts():
    spans = parse_spans("lengths", ["1..5", "a=2", "b=c=3..4", "6"], least=0, most=10)
    assert spans == {"": (6, 6), "a": (2, 2), "b=c": (3, 4)}


@pytest.mark.parametrize("text", ["1..11", "-1", "a=", "5..4", "x"])
def test_spans_out_of_bounds_are_refused(text):
    with pytest.raises(InputError):
        parse_spans("lengths", [text], least=0, most=10)
