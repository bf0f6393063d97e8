"""Devices of a plan of serving, and constraints, as text."""

import pytest

from embershard.errors import InputError
from embershard.planner import parse_constraints, parse_fleet


@pytest.mark.parametrize(
    ("text", "devices", "memory"),
    [
        ("cpu", ("cpu:0",), None),
        ("2xcpu", ("cpu:0", "cpu:1"), None),
        ("2xcpu:500MiB", ("cpu:0", "cpu:1"), 500 << 20),
        ("1xcuda:80GB", ("cuda:0",), 80 * 10**9),
        ("1xcuda:1.5gb", ("cuda:0",), 1_500_000_000),
    ],
)
def test_devices_and_their_memory_are_read(text, devices, memory):
    fleet = parse_fleet(text)
    assert (fleet.devices, fleet.memory_bytes) == (devices, memory)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            "8xcuda",
            "8xcuda: memory: expected bytes of one device, as in 8xcuda:80GB, got none",
            id="gpu-without-memory",
        ),
        pytest.param(
            "2xcpu:0GB", "2xcpu: memory: expected bytes above 0 .* got '0GB'", id="no-memory"
        ),
        pytest.param(
            "2xcpu:-1GB", "2xcpu: memory: expected bytes above 0 .* got '-1GB'", id="negative"
        ),
        pytest.param("2xcpu:80", "2xcpu: memory: expected bytes above 0 .* got '80'", id="no-unit"),
        pytest.param(
            "2xtpu",
            "devices: expected KIND or NxKIND of cpu or cuda, N of 1 .. 1024, as 2xcpu, got "
            "'2xtpu'",
            id="unknown",
        ),
    ],
)
def test_bad_devices_are_refused(text, words):
    with pytest.raises(InputError, match=words):
        parse_fleet(text)


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
