"""Prints a bench's report, as a table or as JSON."""

import math
import textwrap
from dataclasses import asdict
from typing import Any, Final

from embershard.bench.replay import TOLERANCE, AnswerCheck
from embershard.bench.result import Distribution, RunResult
from embershard.bench.session import BenchReport
from embershard.bench.slo import Trial
from embershard.formatting import duration_text, rate_text
from embershard.version import __version__

PERCENTS: Final = (50.0, 90.0, 99.0, 99.9)

NORMAL_95: Final = 1.96
"""Standard deviations on either side of the mean that hold 95 % of a normal distribution."""

CHANCE_SHOWN: Final = 0.02
"""Relative error of the rate above which the table states it (fewer than 9,604 requests)."""

LINE_CHARS: Final = 85


def report_table(report: BenchReport) -> str:
    result, load = report.result, report.result.options
    label = f" ({report.options.traffic.label})" if report.options.traffic.label else ""
    rows = [
        ("model", f"{report.model.name} {report.model.version}{label} at {report.target.name}"),
        *(("requests", line) for line in report.traffic[:1]),
        *(("", line) for line in report.traffic[1:]),
        ("load", _load_text(result)),
        ("rate", _rate_text(result)),
        ("examples", f"{rate_text(result.examples_per_second)}/s"),
        ("latency", _latency_text(result.latency)),
        ("", "from the scheduled time" if load.is_open else "from the sending"),
        ("errors", _errors_text(result)),
        *(("", line) for line in _expired_lines(result)),
        *(("", f"{code}: {text!r}") for code, text in sorted(result.messages.items())),
        ("cpu", _cpu_text(report)),
    ]
    if report.answers is not None:
        rows.append(("answers", _answers_text(report.answers)))
    if report.options.objective is not None:
        verdict, *lines = _objective_lines(report)
        rows += [("objective", verdict), *(("", line) for line in lines)]
    for warning in [*_early_ends(report), *report.warnings]:
        first, *rest = textwrap.wrap(warning, LINE_CHARS, break_on_hyphens=False) or [""]
        rows += [("note", first), *(("", line) for line in rest)]
    return "".join(f"{name:<10} {text}\n" for name, text in rows)


def report_json(report: BenchReport) -> dict[str, Any]:
    """Times are in seconds."""
    result, load = report.result, report.result.options
    return {
        "embershard": __version__,
        "target": report.target.name,
        "model": report.model.name,
        "version": report.model.version,
        "label": report.options.traffic.label,
        "schema": f"{report.model.fingerprint:016x}",
        "traffic": list(report.traffic),
        "load": asdict(load),
        "requests": result.requests,
        "by_code": dict(result.by_code),
        "messages": dict(result.messages),
        "scheduled_per_second": result.scheduled_per_second,
        "ok_per_second": result.ok_per_second,
        "examples_per_second": result.examples_per_second,
        "window_seconds": result.window_seconds,
        "elapsed_seconds": result.elapsed_seconds,
        "latency_seconds": _percentiles(result.latency),
        "latency_buckets_ns": [list(bucket) for bucket in result.latency.buckets],
        "lag_seconds": _percentiles(result.lag),
        "own_lag_seconds": _percentiles(result.own_lag),
        "expired_without_call": result.expired_without_call,
        "expired_before_send": result.expired_before_send,
        "expired_sent_late": result.expired_sent_late,
        "client_cpu_seconds": result.client_cpu_seconds,
        "server_cpu_seconds": result.server_cpu_seconds,
        "server_processes": list(report.server_processes),
        "busiest_thread_share": result.busiest_thread_share,
        "cores": result.cores,
        "objective": str(report.options.objective) if report.options.objective else None,
        "objective_met": report.held if report.options.objective else None,
        "trials": [_trial_json(trial) for trial in report.trials],
        "ended": report.ended,
        "interrupted_seconds": report.interrupted_seconds,
        "server_lost": report.lost,
        "replay": str(report.options.replay) if report.options.replay else None,
        "answers": asdict(report.answers) if report.answers else None,
        "warnings": list(report.warnings),
    }


def _early_ends(report: BenchReport) -> list[str]:
    notes = []
    if report.interrupted_seconds is not None:
        after = duration_text(report.interrupted_seconds)
        notes.append(f"interrupted after {after}: the figures are from the time before")
    if report.lost:
        notes.append("the server does not answer any more")
    return notes


def _load_text(result: RunResult) -> str:
    load = result.options
    how = f"closed loop, {load.in_flight} in flight"
    if load.rate is not None:
        how = f"open loop, {rate_text(load.rate)}/s at random times"
    elif load.recorded_times:
        how = "open loop, at the recorded times"
    threads = f"{load.threads} x {load.connections} connections"
    return f"{how}, for {result.window_seconds:.1f} s, {threads}"


def _rate_text(result: RunResult) -> str:
    answered = f"answered {rate_text(result.ok_per_second)}/s"
    if not result.options.is_open:
        return answered
    sent = f"sent {rate_text(result.scheduled_per_second)}/s"
    if result.options.rate is None:
        return f"{sent}, {answered}"
    return f"asked {rate_text(result.options.rate)}/s, {sent}{_chance_text(result)}, {answered}"


def _chance_text(result: RunResult) -> str:
    error = NORMAL_95 / math.sqrt(max(result.requests, 1))
    return f" (95 % of seeds: within {error:.0%})" if error > CHANCE_SHOWN else ""


def _latency_text(latency: Distribution) -> str:
    if not latency.count:
        return "no answer"
    shown = [
        f"p{percent:g} {duration_text(latency.percentile_seconds(percent))}" for percent in PERCENTS
    ]
    return "  ".join([*shown, f"max {duration_text(latency.max_seconds)}"])


def _errors_text(result: RunResult) -> str:
    failed = result.requests - result.ok
    if not failed:
        return f"none of {result.requests:,}"
    counts = ", ".join(
        f"{code} {count:,}" for code, count in sorted(result.by_code.items()) if code != "OK"
    )
    return f"{failed:,} of {result.requests:,}: {counts}"


def _expired_lines(result: RunResult) -> list[str]:
    """Counts of requests that reached the server after half of their timeout, or never."""
    places = (
        (result.expired_before_send, "never sent: the tool was late, which is not the server's"),
        (result.expired_without_call, "never sent: all calls in flight waited for answers"),
        (result.expired_sent_late, "sent with less than half of the timeout left"),
    )
    return [f"{count:,} expired, {where}" for count, where in places if count]


def _answers_text(check: AnswerCheck) -> str:
    text = f"{check.compared:,} compared with the recorded ones, "
    if check.different:
        text += (
            f"{check.different:,} differ, the first is that to request {check.first_different:,}, "
            f"values by up to {check.largest_difference:.2g}"
        )
    else:
        text += f"none differs by more than {TOLERANCE:g}"
    if check.other_version:
        text += f"; {check.other_version:,} by another version"
    return text


def _objective_lines(report: BenchReport) -> list[str]:
    """The highest rate that met the objective, why the search ended, then a line for each run."""
    verdict = f"{report.options.objective} not met: no run held"
    if report.held:
        sent, planned = report.result.scheduled_per_second, report.result.options.rate or 0.0
        verdict = f"{report.options.objective} held at {rate_text(sent)}/s"
        verdict += f" sent (asked {rate_text(planned)}/s)"
    return [verdict, f"search ended: {report.ended}", *map(_trial_text, report.trials)]


def _trial_text(trial: Trial) -> str:
    seconds = duration_text(trial.seconds) if math.isfinite(trial.seconds) else "no answer"
    missed = "missed: the tool was late" if trial.tool_late else "missed"
    return (
        f"{rate_text(trial.rate):>10}/s  {trial.late:>9,} late of {trial.requests:,}, {seconds}, "
        f"{'held' if trial.held else missed}"
    )


def _trial_json(trial: Trial) -> dict[str, Any]:
    # JSON has no infinity, which means that the request at the percentile failed.
    seconds = trial.seconds if math.isfinite(trial.seconds) else None
    return {**asdict(trial), "seconds": seconds}


def _cpu_text(report: BenchReport) -> str:
    result = report.result
    server = "server unknown"
    if result.server_cpu_seconds is not None:
        per_second = result.ok / result.server_cpu_seconds if result.server_cpu_seconds else 0
        efficiency = f"{rate_text(per_second)} requests per CPU second"
        server = f"server {result.server_cpu_seconds:.2f} s ({efficiency})"
    return (
        f"tool {result.client_cpu_seconds:.2f} s, {server}, "
        f"of {result.cores} cores for {result.elapsed_seconds:.1f} s"
    )


def _percentiles(distribution: Distribution) -> dict[str, float]:
    percentiles = {
        f"p{percent:g}": distribution.percentile_seconds(percent) for percent in PERCENTS
    }
    return {**percentiles, "max": distribution.max_seconds}
