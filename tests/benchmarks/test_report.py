"""The table and the raw results of a benchmark."""

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
