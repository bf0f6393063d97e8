"""What people and programs read: the table, JSON, the progress line."""

import json
from dataclasses import replace

import pytest

from embershard.bench.load_options import LoadOptions
from embershard.bench.rate_search import Trial
from embershard.bench.replay import AnswerCheck
from embershard.bench.report import progress_text, report_json, report_table
from embershard.bench.result import Distribution, Progress, RunResult
from embershard.bench.session import BenchOptions, BenchReport, tool_limits
from embershard.bench.slo import Objective
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
    answer_bytes=1000,
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

REPORT = BenchReport(
    target=Target("127.0.0.1", 50051),
    model=served_model(described()),
    options=BenchOptions(target="localhost:50051", load=LOAD, objective=Objective(99, 0.05)),
    result=RESULT,
    traffic=["1,000 different requests"],
    server_processes=[42],
    trials=[
        Trial(50, True, seconds=0.002, requests=330, late=2),
        Trial(100, False, seconds=0.05, requests=500, late=11),
        Trial(100, False, requests=400, late=9),
        Trial(50, True, True, 0.03, 500, 5),
    ],
    ended="100/s was given up",
    confirmed=True,
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
        "objective  p99<50ms held at 100/s sent (asked 50.0/s)",
        "           search ended: 100/s was given up",
        "           trial           50.0/s          2 late of 330, 2.00 ms",
        "           trial            100/s         11 late of 500, 50.0 ms",
        "           trial            100/s          9 late of 400, no answer",
        "           whole run       50.0/s          5 late of 500, 30.0 ms",
        "note       take care",
    ]


def test_where_no_rate_held_for_a_whole_run_the_best_trial_is_named():
    trials = [Trial(50, True), Trial(75, True), Trial(75, False, True), Trial(70, False, True)]
    table = report_table(replace(REPORT, trials=trials, confirmed=False))
    words = "no rate held for whole runs; 75.0/s is the highest that held for a trial"
    assert f"objective  p99<50ms not met: {words}\n" in table
    assert "held at" not in table


def test_a_search_that_was_stopped_says_what_it_had_found():
    trials = [Trial(50, True), Trial(75, False, judged=False)]
    stopped = replace(
        REPORT, trials=trials, confirmed=False, lost="gone", interrupted_seconds=12.34
    )
    table = report_table(stopped)
    words = "no whole run was made; 50.0/s is the highest that held for a trial"
    assert f"objective  p99<50ms not met: {words}\n" in table
    assert "75.0/s          0 late of 0, no answer; not judged: the tool was late\n" in table
    assert "note       interrupted after 12.3 s: this is what was measured until then\n" in table
    assert "note       the server does not answer any more\n" in table
    assert report_json(stopped)["server_lost"] == "gone"
    nothing = report_table(replace(stopped, trials=trials[1:]))
    assert "objective  p99<50ms not met: no trial held\n" in nothing


def test_requests_that_expired_in_the_tool_are_told_from_the_servers_failures():
    expired = replace(
        RESULT, expired_before_send=1200, expired_without_call=3, expired_sent_late=40
    )
    table = report_table(replace(REPORT, result=expired))
    for line in (
        "1,200 expired, never sent: the tool was late, which is not the server's",
        "3 expired, never sent: all calls in flight waited for answers",
        "40 expired, sent with less than half of the timeout left",
    ):
        assert f"           {line}\n" in table


def test_the_error_of_many_requests_is_not_worth_a_word():
    """1.96 / sqrt(9,604) is 2 %."""
    for requests, said in ((9603, True), (9604, False)):
        table = report_table(replace(REPORT, result=replace(RESULT, requests=requests)))
        assert ("95 % of seeds: within 2%" in table) is said


def test_long_notes_are_folded():
    table = report_table(replace(REPORT, warnings=["word " * 40, "next"]))
    first, second, third, last = table.splitlines()[-4:]
    assert first.startswith("note       word word")
    assert second.startswith("           word word")
    assert max(map(len, (first, second, third))) <= 96
    assert last == "note       next"


def test_a_closed_loop_says_so():
    closed = replace(RESULT, options=LoadOptions(in_flight=8), server_cpu_seconds=None)
    table = report_table(replace(REPORT, result=closed))
    assert "closed loop, 8 in flight" in table
    assert "from the sending" in table
    assert "server unknown" in table


def test_recorded_times_say_so():
    recorded = replace(RESULT, options=LoadOptions(recorded_times=True))
    table = report_table(replace(REPORT, result=recorded))
    assert "open loop, at the recorded times, for 1.0 s" in table
    assert "rate       sent 100/s, answered 48.0/s" in table
    assert "from the scheduled time" in table


@cases(
    ("different", "other_version", "words"),
    {
        "none": (0, 0, "1,200 compared with the recorded ones, none differs by more than 1e-05"),
        "some": (3, 0, "3 differ, the first is that to request 17, values by up to 0.25"),
        "another-version": (0, 9, "more than 1e-05; 9 by another version"),
    },
)
def test_a_replay_says_how_many_answers_differ(different, other_version, words):
    check = AnswerCheck(
        compared=1200,
        different=different,
        largest_difference=0.25,
        first_different=17 if different else None,
        other_version=other_version,
    )
    report = replace(REPORT, answers=check)
    (line,) = (line for line in report_table(report).splitlines() if line.startswith("answers"))
    assert line.endswith(words)
    assert report_json(report)["answers"]["different"] == different


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
    failed = {"rate": 100, "held": False, "whole": False, "judged": True}
    held = {"rate": 50, "held": True, "whole": True, "judged": True}
    assert document["trials"][1:] == [
        {**failed, "seconds": 0.05, "requests": 500, "late": 11},
        {**failed, "seconds": None, "requests": 400, "late": 9},
        {**held, "seconds": 0.03, "requests": 500, "late": 5},
    ]
    assert document["objective_met"] is True
    assert document["interrupted_seconds"] is None
    assert document["server_lost"] == ""
    assert document["expired_before_send"] == 0
    assert document["ended"] == "100/s was given up"
    assert document["replay"] is None
    assert document["answers"] is None


def test_a_quiet_run_has_no_limits_of_the_tool():
    assert tool_limits(RESULT) == []


@cases(
    ("change", "words"),
    {
        "no-call": ({"lag": LATE}, "left 5.00 ms or more after"),
        "no-call-why": ({"lag": LATE}, "as many were unanswered as the tool may have in flight"),
        "late": ({"lag": LATE, "own_lag": LATE}, "counts: the tool was late, on a busy machine"),
        "thread": ({"busiest_thread_share": 0.95}, "busy for 95% of the run"),
        "machine": ({"client_cpu_seconds": 7.4}, "7.9 of 8.0 CPU seconds"),
    },
)
def test_the_tool_says_when_it_was_the_limit(change, words):
    (found,) = tool_limits(replace(RESULT, **change))
    assert words in found


NOW = Progress(seconds=1.5, requests=1200, requests_per_second=800, errors=3, latency=LATENCY)


def test_the_progress_line_says_that_nothing_is_counted_during_the_warm_up():
    warming_up = replace(NOW, seconds=0.5, requests=0, warming_up=True)
    assert progress_text("run", warming_up) == "run:   0.5 s  warm-up, not counted"
    counted = "run:   1.5 s  1,200 requests  800/s  3 errors  p50 1.00 ms  p99 30.0 ms"
    assert progress_text("run", NOW) == counted
