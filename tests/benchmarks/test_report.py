"""The report: rows of several runs in one file, and the table that is written from it."""

import json

import pytest

from benchmarks.harness import Row
from benchmarks.report import Run, markdown, merge, read, write


def row(name, **more):
    return Row(
        **{
            "name": name,
            "what": "w",
            "unit": "u/s",
            "ours": "we",
            "value": 1.0,
            "moved": 0.0,
            **more,
        }
    )


def run(commit):
    return Run(machine={"cpu": "1 x X"}, commit=commit, command="c", date="2000-01-01")


NOTHING = {"runs": [], "rows": []}


def names(results):
    return [(each["name"], results["runs"][each["run"]]["commit"]) for each in results["rows"]]


def test_rows_of_another_benchmark_keep_their_run():
    results = merge(NOTHING, "a", [row("a/1"), row("a/2")], run("old"))
    results = merge(results, "b", [row("b/1")], run("new"))
    assert names(results) == [("a/1", "old"), ("a/2", "old"), ("b/1", "new")]


def test_a_benchmark_run_again_replaces_all_its_rows():
    results = merge(NOTHING, "a", [row("a/1"), row("a/gone")], run("old"))
    results = merge(results, "b", [row("b/1")], run("old"))
    results = merge(results, "a", [row("a/1")], run("new"))
    assert names(results) == [("a/1", "new"), ("b/1", "old")]


def test_a_run_without_rows_is_forgotten():
    results = merge(NOTHING, "a", [row("a/1")], run("old"))
    results = merge(results, "a", [row("a/1")], run("new"))
    assert [each["commit"] for each in results["runs"]] == ["new"]


def test_one_run_of_several_benchmarks_is_listed_once():
    results = merge(NOTHING, "a", [row("a/1")], run("same"))
    results = merge(results, "b", [row("b/1")], run("same"))
    assert [each["commit"] for each in results["runs"]] == ["same"]


def test_merging_leaves_what_was_there_as_it_is():
    results = merge(NOTHING, "a", [row("a/1")], run("old"))
    before = json.dumps(results)
    merge(results, "a", [row("a/1")], run("new"))
    assert json.dumps(results) == before


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([row("b/1")], id="of-another-benchmark"),
        pytest.param([row("a")], id="without-a-slash"),
        pytest.param([row("a/1"), row("a/1")], id="twice"),
    ],
)
def test_names_that_would_not_merge_are_refused(rows):
    with pytest.raises(ValueError, match="expected names `a/<row>`, each once"):
        merge(NOTHING, "a", rows, run("x"))


def test_the_table_shows_value_peer_ratio_limit_and_share():
    full = row(
        "a/1",
        value=1500.0,
        spread=0.021,
        theirs="they",
        their_value=750.0,
        their_spread=0.5,
        ratio=2.0,
        pairs=15,
        low=1.9,
        high=2.125,
        limit=3000.0,
        limit_name="gather",
        moved=0.1,
        note="n",
    )
    lines = markdown(merge(NOTHING, "a", [full], run("x"))).splitlines()
    assert (
        "| 1 | w (n) | u/s | we: 1,500 ± 2% | they: 750.0 ± 50% | 2.00 (1.90 .. 2.12) "
        "| gather: 3,000 | 0.50 | 0 |"
    ) in lines
    assert "## a" in lines
    assert "| 0 | 2000-01-01 | x | `c` | cpu 1 x X |" in lines


def test_of_few_pairs_the_table_shows_the_spread_and_how_many_they_are():
    few = row("a/1", theirs="they", their_value=0.5, ratio=2.0, pairs=3, low=1.5, high=2.5)
    text = markdown(merge(NOTHING, "a", [few], run("x")))
    assert "| 2.00 (1.50 .. 2.50, all 3) |" in text


def test_a_void_row_is_marked_with_how_far_the_machine_moved():
    text = markdown(merge(NOTHING, "a", [row("a/1", moved=0.2)], run("x")))
    assert "| 0, **void**: the machine moved by 20% |" in text


def test_files_read_back_as_they_were_and_remarks_stand_before_the_tables(tmp_path):
    (tmp_path / "REMARKS.md").write_text("Said by a person.\n")
    results = merge(read(tmp_path), "a", [row("a/1")], run("x"))

    write(tmp_path, results)

    assert read(tmp_path) == results
    text = (tmp_path / "RESULTS.md").read_text()
    assert text.startswith("# Results\n\nSaid by a person.\n\nValues are")
