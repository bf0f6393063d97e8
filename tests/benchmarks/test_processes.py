"""Sides of a benchmark in their own processes."""

import os
import sys

import pytest

from benchmarks.checkout import Command
from benchmarks.processes import ChildEndedError, child_process, server_process

CHILD = "from benchmarks.child import answer; print('loading'); answer('rows', lambda: 5)"


def python(script):
    return Command((sys.executable, "-c", script))


def test_a_child_answers_blocks_with_figures():
    with child_process(python(CHILD), seconds=0.01) as block:
        assert block(None)["rows_per_second"] > 0


def test_a_block_takes_the_seconds_that_it_is_told():
    script = "print('ready', flush=True)\nprint('{\"s\": %s}' % input().split()[1])"
    with child_process(python(script), seconds=5.0) as block:
        assert block(0.25) == {"s": 0.25}


def test_a_child_runs_on_its_cores():
    core = min(os.sched_getaffinity(0))
    script = (
        "import json, os; from benchmarks.child import serve_blocks;"
        "serve_blocks(lambda s: {'cores': len(os.sched_getaffinity(0))})"
    )
    with child_process(python(script), cores=(core,)) as block:
        assert block(0.1) == {"cores": 1}


def test_a_child_that_ends_too_early_is_named_with_its_status():
    with (
        pytest.raises(ChildEndedError, match=r"SystemExit.*exit code 3"),
        child_process(python("raise SystemExit(3)")),
    ):
        pass


def test_a_child_that_ends_instead_of_answering_is_named():
    script = "print('ready', flush=True); input(); raise SystemExit(4)"
    with (
        pytest.raises(ChildEndedError, match="exit code 4"),
        child_process(python(script)) as block,
    ):
        block(0.01)


def test_a_server_that_does_not_listen_is_named():
    with (
        pytest.raises(RuntimeError, match=r"expected `serving \.\.\. on HOST:PORT`, got 'no'"),
        server_process(python("print('no', end='')")),
    ):
        pass
