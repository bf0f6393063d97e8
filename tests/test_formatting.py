"""Numbers, sizes and durations are formatted for people."""

import math

import pytest

from embershard.formatting import (
    count_text,
    devices_text,
    duration_text,
    megabytes_text,
    ms_text,
    names_text,
    printable,
    rate_text,
    round_duration_text,
    table_lines,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.234, "1.23 s"),
        (0.01234, "12.3 ms"),
        (0.000456, "456 us"),
        (0, "0.00 us"),
        (123.4, "123 s"),
        (math.inf, "never"),
    ],
)
def test_durations_have_three_digits(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(1234.5, "1,234"), (100, "100"), (7.25, "7.2")])
def test_rates_keep_a_digit_where_they_are_low(rate, text):
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.01, "10 ms"),
        (3e-4, "300 us"),
        (1.5, "1.5 s"),
        (0.001 * (1 - 1e-12), "1 ms"),
        (1e-9, "0.001 us"),
    ],
)
def test_a_duration_that_was_chosen_keeps_its_round_digits(seconds, text):
    assert round_duration_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1_234_567_890, "1,235"), (12_345_678, "12.3"), (456_789, "0.457")]
)
def test_megabytes_have_more_digits_the_fewer_they_are(count, text):
    assert megabytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.2345678, "1234.568"), (1e-5, "0.010"), (1.25e-6, "0.001250"), (0, "0.000")],
)
def test_milliseconds_below_a_hundredth_have_six_digits(seconds, text):
    assert ms_text(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 tables"), (1, "1 table"), (1200, "1,200 tables")]
)
def test_a_count_takes_the_plural_unless_it_is_one(number, text):
    assert count_text(number, "table") == text


def test_devices_are_named_as_long_as_they_are_few():
    assert devices_text(["cpu:0", "cpu:1"], shown=2) == "cpu:0, cpu:1"
    assert devices_text(["cpu:0", "cpu:1"], shown=1) == "2 devices"


def test_what_does_not_print_is_escaped_as_json_does():
    assert printable("a\x1b\x7f\x9b\n\u2028é") == r"a\u001b\u007f\u009b\n\u2028é"
    assert printable("a\n\x1b", keep="\n") == "a\n\\u001b"


def test_many_names_show_the_first_ones_and_the_number_of_others():
    assert names_text(["b", "a"]) == "a, b"
    assert names_text(["c", "a", "b"], shown=2) == "a, b, 1 more"


def test_a_table_is_markdown():
    assert table_lines(("name", "rows"), [("item", 40), ("user", 3)]) == [
        "| name | rows |",
        "|---|---|",
        "| item | 40 |",
        "| user | 3 |",
    ]
