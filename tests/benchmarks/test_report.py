"""The table and the raw results of a run."""

import json

import numpy as np

from benchmarks.harness import Row
from benchmarks.report import Run, table, write
from benchmarks.statistics import Bound

RUN = Run(machine={"cpu": "1 x X"}, commits=["abc", "def+"], command="c", date="2000-01-02 03:04")


def row(**more):
    settings = {
        "name": "a/1",
        "what": "w",
        "figure": "requests_per_second",
        "ours": "we",
        "values": np.array([1400.0, 1500.0, 1600.0]),
        "theirs": "they",
        "their_values": np.array([700.0, 750.0, 800.0]),
        **more,
    }
    return Row(**settings)


def test_the_table_shows_medians_spread_ratio_interval_and_bound():
    lines = table(RUN, [row(bound=Bound(1.5))]).splitlines()
    assert lines[2] == (
        "| 1 | w | requests per second | we: 1,500 ± 7% | they: 750.0 ± 7% "
        "| 2.00 (2.00 .. 2.00, 3 pairs) | >= 1.5 | not judged |"
    )
    assert lines[-1] == "abc against def+, 2000-01-02 03:04, `c`: cpu 1 x X"


def test_the_table_says_which_cores_were_used_and_when_the_tool_was_the_limit():
    notes = {"server_cores": 1.25, "tool_cores": 0.5, "tool_busiest_thread": 0.95}
    text = table(RUN, [row(notes=notes)])
    assert "| w; cores used: server 1.25, tool 0.50; the tool was the limit, its busiest" in text


def test_the_table_marks_rows_that_failed():
    ten = {"values": np.full(10, 4.0), "their_values": np.full(10, 2.0), "bound": Bound(2.5)}
    assert table(RUN, [row(**ten)]).splitlines()[2].endswith("| >= 2.5 | FAILED |")


def test_raw_results_hold_every_block_and_the_origin(tmp_path):
    path = write(tmp_path / "new", "a", RUN, [row(), row(name="a/2", theirs="", their_values=None)])
    document = json.loads(path.read_text())
    assert path.name == "a-200001020304.json"
    assert (document["commits"], document["machine"]) == (["abc", "def+"], {"cpu": "1 x X"})
    assert document["rows"][0]["values"] == [1400, 1500, 1600]
    assert document["rows"][0]["ratio"] == {"ratio": 2.0, "low": 2.0, "high": 2.0}
    assert document["rows"][1]["ratio"] is None
