"""The report of a plan, of training and of serving."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from embershard.errors import InputError
from embershard.planner.cost import ShardCosts
from embershard.planner.options import Option
from embershard.planner.placement import Placement, Ranks
from embershard.planner.report import SizeLoad
from embershard.planner.report_builder import ReportInput, build_report
from tests.cases import cases, refused


def option(kind, seconds, memory, host_columns=0):
    spans = (((0, 1), (0, 4)),) * len(seconds)
    return Option(kind, spans, np.array(seconds, float), np.array(memory, float), host_columns)


def report_input(options, chosen, ranks, caps=(100.0, 100.0), costs=()):
    placement = Placement(options, Ranks(np.ones(2), np.array([caps]), 2))
    for table, (at, on) in enumerate(zip(chosen, ranks, strict=True)):
        placement.put(table, at, on)
    return ReportInput(
        tables=[("", f"t{at}") for at in range(len(options))],
        placement=placement,
        ranks=["a", "b"],
        memory_bytes_max=[int(cap) for cap in caps],
        seconds=0.5,
        costs=costs,
    )


HEAVY = [option("table", [6], [60]), option("column", [4, 4], [30, 30])]
LIGHT = [option("table", [3], [10])]


def test_load_and_memory_of_a_rank_are_sums_over_tables():
    report = build_report(report_input([HEAVY, LIGHT], [1, 0], [[0, 1], [1]]))
    assert [rank.seconds for rank in report.ranks] == [4, 7]
    assert [rank.memory_bytes for rank in report.ranks] == [30, 40]
    assert [part.table for part in report.ranks[1].parts] == ["t0", "t1"]
    assert report.busiest_seconds == 7


def test_plans_are_compared_by_the_sum_of_busiest_phases():
    def phased(*shards):
        phases = np.array(shards, float).T
        spans = (((0, 1), (0, 4)),) * len(shards)
        return Option("row_wise", spans, phases, np.ones(len(shards)))

    # Rank a takes 4 s in the first phase, rank b 5 s in the second. With both halves of t1 on b,
    # each phase takes 4 s. The bound is half of 10 s, the work of t0 and of the halves of t1.
    tables = [[phased((4, 0))], [phased((0, 5)), phased((1, 2), (1, 2))]]
    report = build_report(report_input(tables, [0, 0], [[0], [1]]))
    assert report.phase_seconds == [4, 5]
    assert (report.busiest_seconds, report.placement_seconds) == (5, 9)
    assert report.gap == pytest.approx(9 / 5 - 1)
    (other,) = report.tables[0].alternatives
    assert other.placement_seconds == 4 + 4
    assert "| other cut | ms | step then, ms |" in report.explain("t1")


def test_tables_that_nothing_looks_up_have_no_bound():
    report = build_report(report_input([[option("table", [0], [60])]], [0], [[0]]))
    assert (report.bound_seconds, report.limit) == (0, "nothing is looked up")


def test_costs_of_a_rank_are_those_of_its_shards_by_kind():
    # Both shards lie on rank b. Seconds are given by phase and shard, bytes by shard.
    costs = ShardCosts(
        kernels=np.array([[1.0, 2.0], [3.0, 4.0]]),
        messages=np.array([[0.5, 0.25], [0.5, 0.75]]),
        bytes_in=np.array([1e6, 2e6]),
        bytes_out=np.array([3e6, 4e6]),
        weights=np.array([5e6, 6e6]),
        state=np.array([7e6, 8e6]),
        buffers=np.array([9e6, 10e6]),
    )
    table = [Option("row_wise", (((0, 1), (0, 4)),) * 2, costs.phases, costs.memory[0])]
    report = build_report(report_input([table], [0], [[1, 1]], caps=(1e9, 1e9), costs=[costs]))
    assert report.ranks[1].seconds == 12
    assert (
        "| device | forward, ms | backward, ms | messages, ms | MB in | MB out | weights MB | "
        "state MB | buffers MB |"
    ) in report.to_text()
    line = "| b | 3000.000 | 7000.000 | 2000.000 | 3.000 | 7.000 | 11.0 | 15.0 | 19.0 |"
    assert line in report.to_text()
    assert "<td>11.0</td>" in report.to_html()


def test_loads_below_ten_microseconds_have_more_digits():
    tables = [option("table", [1.25e-6], [60]), option("table", [2e-5], [10])]
    text = build_report(report_input([[table] for table in tables], [0, 0], [[0], [1]])).to_text()
    assert "| a | 0.001250 |" in text
    assert "| b | 0.020 |" in text


def test_the_second_best_leaves_the_busiest_rank_least_busy():
    report = build_report(report_input([HEAVY, LIGHT], [1, 0], [[0, 1], [1]]))
    heavy, light = report.tables
    assert [
        (alternative.sharding_type, alternative.placement_seconds)
        for alternative in heavy.alternatives
    ] == [("table", 6)]
    assert list(light.alternatives) == []


def test_another_cut_that_does_not_fit_the_memory_is_said_to():
    options = [[*HEAVY, option("replicate", [2, 2], [60, 60], host_columns=2)], LIGHT]
    report = build_report(report_input(options, [1, 0], [[0, 1], [1]], caps=(65.0, 65.0)))
    assert report.explain("t1").endswith(" ms\n\nno other cut\n")
    text = report.explain("t0")
    assert "| replicate x 2 | 4000.000 | over the memory |" in text
    assert (
        "t0: column x 2 on a, b; 8000.000 ms a step, 72.7% of all, number 1 of 2 tables by time\n"
        in text
    )


@cases(
    ("options", "caps", "words"),
    {
        "work": ([LIGHT, LIGHT], (100, 100), "the work of all tables"),
        "table": ([[option("table", [9], [1])], LIGHT], (100, 100), "table t0: no cut"),
        "memory": (
            [
                [
                    option("column", [4, 4], [9, 9]),
                    option("table", [6], [20]),
                    option("row", [9, 9], [5, 5]),
                ]
            ],
            (5, 5),
            "memory: with enough of it the bound would be 4000.000 ms",
        ),
    },
)
def test_the_limit_is_named(options, caps, words):
    chosen = [0] * len(options)
    ranks = [[0] * len(option[0].spans) for option in options]
    assert words in build_report(report_input(options, chosen, ranks, caps)).limit


def test_the_page_is_whole_and_shows_every_rank():
    options = [HEAVY, LIGHT]
    plan = report_input(options, [1, 0], [[0, 1], [1]])
    page = build_report(plan, costs="of `a & b`").to_html(title="<plan> & more")
    assert "<p>of <code>a &amp; b</code></p>" in page
    assert "&lt;plan&gt; &amp; more" in page
    assert not re.search(r"(src|href)=|<script|https?:", page.replace("http://www.w3.org", ""))
    load, memory = (ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page))
    for picture in (load, memory):
        assert [label.text for label in picture.iter("text")][::2] == ["a", "b"]
        assert len(list(picture.iter("rect"))) == 3
    widths = [float(bar.get("width")) for bar in load.iter("rect")]
    assert widths == pytest.approx([640 * 4 / 7, 640 * 4 / 7, 640 * 3 / 7], abs=0.01)


def test_a_table_that_is_not_planned_cannot_be_explained():
    report = build_report(report_input([HEAVY, LIGHT], [0, 0], [[0], [1]]))
    with refused(InputError, "(t0, t1)", "got 'x'"):
        report.explain("x")


def test_tables_that_are_not_shown_are_counted():
    tables = [[option("table", [at + 1], [1])] for at in range(12)]
    report = build_report(report_input(tables, [0] * 12, [[0]] * 12))
    assert "| table (10 heaviest of 12) | cut |" in report.to_text()
    assert "| table | cut |" in report.to_text(tables_max=12)


def test_batches_of_one_thread_are_said_to_be():
    sizes = [
        SizeLoad(examples=examples, seconds=1e-3, work_seconds=1e-3, alone=alone)
        for examples, alone in ((1, 1.0), (64, 1.0), (256, 0.5))
    ]
    report = build_report(report_input([LIGHT], [0], [[0]]), sizes=sizes)
    assert "batches of up to 64 examples are looked up by one thread" in report.to_text()
