"""The report: a table for people, JSON for programs."""

import json
import math
from dataclasses import replace

import pytest

from embershard.bench.load_options import LoadOptions
from embershard.bench.report import report_json, report_table
from embershard.bench.result import Distribution, RunResult
from embershard.bench.session import BenchOptions, BenchReport, tool_limits
from embershard.bench.slo import Objective, Trial
from embershard.bench.target import Target
from embershard.client.prediction import served_model
from tests.bench.fake_predictor import described
from tests.cases import cases

MS = 1_000_000
LATENCY = Distribution([(MS, MS, 80), (2 * MS, 2 * MS, 15), (30 * MS, 30 * MS, 1)])
LATE = Distribution([(5 * MS, 5 * MS, 100)])
LOAD = LoadOptions(rate=100)

RESULT = RunResult(
    options=LOAD,
    requests=100,
    by_code={"OK": 96, "UNAVAILABLE": 4},
    messages={"UNAVAILABLE": "draining"},
    examples_ok=960,
    latency=LATENCY,
    lag=Distribution([(1000, 1000, 100)]),
    refusal=Distribution([]),
    window_seconds=1.0,
    elapsed_seconds=2.0,
    client_cpu_seconds=0.25,
    server_cpu_seconds=0.5,
    busiest_thread_share=0.2,
    cores=4,
)

HELD = Trial(rate=100, held=True, seconds=0.002, requests=1100, late=2, tool_late=False)
MISSED = Trial(rate=105, held=False, seconds=math.inf, requests=1150, late=90, tool_late=False)

REPORT = BenchReport(
    target=Target("127.0.0.1", 50051),
    model=served_model(described()),
    options=BenchOptions(target="localhost:50051", load=LOAD, objective=Objective(99, 0.05)),
    result=RESULT,
    traffic=["1,000 different requests"],
    server_processes=[42],
    trials=[HELD, MISSED],
    ended="105/s missed",
    warnings=["take care"],
)


def test_the_table_says_it_all():
    assert report_table(REPORT).splitlines() == [
        "model      ranker 7 at ipv4:127.0.0.1:50051",
        "requests   1,000 different requests",
        "load       open loop, 100/s at random times, for 1.0 s, 1 x 1 connections",
        "rate       asked 100/s, sent 100/s (95 % of seeds: within 20%), answered 48.0/s",
        "examples   480/s",
        "latency    p50 1.00 ms  p90 2.00 ms  p99 30.0 ms  p99.9 30.0 ms  max 30.0 ms",
        "           from the scheduled time",
        "errors     4 of 100: UNAVAILABLE 4",
        "           UNAVAILABLE: 'draining'",
        "cpu        tool 0.25 s, server 0.50 s (192 requests per CPU second), of 4 cores for 2.0 s",
        "objective  p99<50ms held at 100/s sent (asked 100/s)",
        "           search ended: 105/s missed",
        "                  100/s          2 late of 1,100, 2.00 ms, held",
        "                  105/s         90 late of 1,150, no answer, missed",
        "note       take care",
    ]


def test_a_search_without_a_run_that_held_says_so():
    late = replace(MISSED, seconds=0.0512, tool_late=True)
    table = report_table(replace(REPORT, trials=[MISSED, late]))
    assert "objective  p99<50ms not met: no run held\n" in table
    assert "105/s         90 late of 1,150, 51.2 ms, missed: the tool was late\n" in table
    assert "held at" not in table


def test_json_holds_the_numbers():
    document = json.loads(json.dumps(report_json(REPORT), allow_nan=False))
    assert document["latency_seconds"] == pytest.approx(
        {"p50": 0.001, "p90": 0.002, "p99": 0.03, "p99.9": 0.03, "max": 0.03}
    )
    assert document["by_code"] == {"OK": 96, "UNAVAILABLE": 4}
    assert document["ok_per_second"] == 48
    assert document["examples_per_second"] == 480
    assert document["client_cpu_seconds"] == 0.25
    assert document["server_processes"] == [42]
    assert document["latency_buckets_ns"] == [list(bucket) for bucket in LATENCY.buckets]
    assert document["objective"] == "p99<50ms"
    held = {"rate": 100, "held": True, "seconds": 0.002, "requests": 1100, "late": 2}
    missed = {"rate": 105, "held": False, "seconds": None, "requests": 1150, "late": 90}
    assert document["trials"] == [{**held, "tool_late": False}, {**missed, "tool_late": False}]
    assert document["objective_met"] is True
    assert document["interrupted_seconds"] is None
    assert document["server_lost"] == ""
    assert document["expired_before_send"] == 0
    assert document["ended"] == "105/s missed"
    assert document["replay"] is None
    assert document["answers"] is None


def test_a_quiet_run_has_no_limits_of_the_tool():
    assert tool_limits(RESULT) == []


@cases(
    ("change", "words"),
    {
        "no-call": ({"lag": LATE}, "sent 5.00 ms or more after"),
        "no-call-why": ({"lag": LATE}, "the tool may have at most 4096 unanswered requests"),
        "late": ({"lag": LATE, "own_lag": LATE}, "includes: the tool was late: the machine"),
        "thread": ({"busiest_thread_share": 0.95}, "busy for 95% of the run"),
        "machine": ({"client_cpu_seconds": 7.4}, "7.9 of 8.0 available CPU seconds"),
    },
)
def test_the_tool_says_when_it_was_the_limit(change, words):
    (result,) = tool_limits(replace(RESULT, **change))
    assert words in result
