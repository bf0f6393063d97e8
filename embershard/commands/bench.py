"""The command `embershard bench`."""

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from embershard.commands.packages import package_folder
from embershard.commands.predict import add_connecting, connection
from embershard.commands.report_file import ReportFile
from embershard.errors import InputError, RetryError, UnavailableError

if TYPE_CHECKING:
    from embershard.bench import BenchOptions, BenchReport

RECORDED: Final = "recorded"

STANDARD_OUTPUT: Final = Path("-")

OBJECTIVE_MISSED: Final = 3

START_OF_LINE: Final = "\r\x1b[K"

DRAWN: Final = (
    *("examples", "ids", "lengths", "id_range", "package", "pool", "priority"),
    *("version", "label"),
)
"""Flags about generated requests, which --replay excludes."""

# The flag of each option. If the flag is not set, the option keeps its default.
LOAD: Final = {
    "duration_seconds": "duration",
    "max_requests": "requests",
    "warmup_seconds": "warmup",
    "timeout_seconds": "timeout",
    "max_in_flight": "max_in_flight",
    "threads": "threads",
    "connections": "connections",
    "streams": "streams",
    "protocol": "protocol",
    "seed": "seed",
}
TRAFFIC: Final = {
    "examples": "examples",
    "zipf_alpha": "ids",
    "pool_requests": "pool",
    "priority": "priority",
    "version": "version",
    "label": "label",
    "seed": "seed",
}


def add_bench(commands: Any) -> None:
    command = commands.add_parser(
        "bench",
        help="put a server under load and measure it",
        description="Put a server under load and measure it. Without --rate, --slo or --in-flight, "
        "one request is sent at a time.",
    )
    add = command.add_argument
    target_help = "address of the server; a loopback address, unless --allow-remote is set"
    add("--target", required=True, metavar="HOST:PORT", help=target_help)
    add("--model", default="", help="model to measure (default: the only one that is served)")
    add(
        "--version",
        type=int,
        metavar="N",
        help="version to measure (default: the default version, even if it changes meanwhile)",
    )
    add("--label", metavar="LABEL", help="measure the version with this label, such as canary")
    _add_rate(command)
    _add_requests(add)
    _add_sending(add)
    add(
        "--server-pid",
        type=int,
        metavar="PID",
        help="process whose CPU time is measured (default: the one that listens on a local target)",
    )
    add("--json", type=Path, metavar="FILE", help="write the report to FILE; -: standard output")
    add("--allow-remote", action="store_true", help="allow a target on another machine")
    add_connecting(command.add_argument_group("security"))
    command.set_defaults(run=_bench)


def _add_rate(command: argparse.ArgumentParser) -> None:
    loop = command.add_mutually_exclusive_group()
    loop.add_argument(
        "--rate",
        type=_rate,
        metavar="R|recorded",
        help="open loop: send R requests per second at random times; recorded: send them at the "
        "times in the file of --replay",
    )
    loop.add_argument(
        "--in-flight", type=int, metavar="N", help="closed loop: keep N requests in flight"
    )
    add = command.add_argument
    add(
        "--slo",
        metavar="'p99<10ms'",
        help="find the highest rate that meets this objective; --rate is the first one tried",
    )
    add("--duration", type=float, metavar="SECONDS", help="length of a run (default: 10)")
    add("--requests", type=int, metavar="N", help="most requests of a run (default: 1000000)")
    add("--warmup", type=float, metavar="SECONDS", help="time before measurement (default: 1)")
    add("--timeout", type=float, metavar="SECONDS", help="timeout of a request (default: 1)")


def _add_requests(add: Any) -> None:
    add("--replay", type=Path, metavar="FILE", help="send requests of embershard serve --record")
    add(
        "--examples",
        metavar="N|A..B|mlperf",
        help="examples in a request; mlperf: sizes from MLPerf's DLRM-v2 (default: 1)",
    )
    add("--ids", metavar="zipf:ALPHA|uniform", help="distribution of ids (default: zipf:1.05)")
    add(
        "--lengths",
        action="append",
        default=[],
        metavar="[FEATURE=]A..B",
        help="number of ids in a list (default: 1, or up to the model's limit but at most 50)",
    )
    add(
        "--id-range",
        action="append",
        default=[],
        metavar="[FEATURE=]A..B",
        help="ids to send if the server does not report which ids it knows",
    )
    add("--package", type=Path, help="the served package; ids are taken from its vocabularies")
    add("--priority", metavar="interactive|background", help="of requests (default: interactive)")
    add("--pool", type=int, metavar="N", help="number of different requests (default: 1000)")
    add("--seed", type=int, help="seed of requests and sending times (default: 0)")


def _add_sending(add: Any) -> None:
    add(
        "--max-in-flight",
        type=int,
        metavar="N",
        help="most requests in flight in an open loop (default: 4096)",
    )
    add("--threads", type=int, help="sending threads; each has a receiving one (default: 1)")
    add("--connections", type=int, help="connections of each thread (default: 1)")
    add(
        "--streams",
        type=int,
        metavar="N",
        help="send on N streams (default: a call for each request)",
    )
    add("--protocol", metavar="embershard|oip|torchrec", help="protocol (default: embershard)")


def _bench(args: argparse.Namespace) -> int:
    """Write the report even after a signal, and only then raise errors."""
    options = _bench_options(args)
    with ExitStack() as files:
        file = None
        if args.json is not None and args.json != STANDARD_OUTPUT:
            file = files.enter_context(ReportFile("--json", args.json))
        report, interrupt = _run(options)
        _show(report, args.json, file)
    if interrupt is not None:
        raise interrupt
    _check_served(report)
    return 0 if report.options.objective is None or report.held else OBJECTIVE_MISSED


def _run(options: "BenchOptions") -> "tuple[BenchReport, KeyboardInterrupt | None]":
    """Return the report, and the signal that ended the run early or None."""
    from embershard.bench import BenchInterrupt, run_bench

    def show(text: str) -> None:
        if sys.stderr.isatty():
            print(f"{START_OF_LINE}{text}", end="", file=sys.stderr, flush=True)

    try:
        return run_bench(options, progress=show), None
    except BenchInterrupt as interrupt:
        return interrupt.report, interrupt
    finally:
        show("")


def _show(report: "BenchReport", path: Path | None, file: ReportFile | None) -> None:
    from embershard.bench import report_json, report_table

    # JSON on standard output must be alone there, so the table goes to standard error.
    is_json_printed = path == STANDARD_OUTPUT
    text = json.dumps(report_json(report), indent=2) + "\n"
    if file is not None:
        file.write(text)
    print(report_table(report), end="", file=sys.stderr if is_json_printed else sys.stdout)
    if is_json_printed:
        print(text, end="")


def _check_served(report: "BenchReport") -> None:
    result = report.result
    if report.lost:
        raise UnavailableError(f"the server does not answer any more: {report.lost}")
    if report.options.objective is not None or result.ok:
        return
    if not result.requests:
        window = f"{result.window_seconds:g} s"
        raise InputError(
            f"--duration: expected at least one request within {window}, got none; use a longer one"
        )
    codes = ", ".join(sorted(result.by_code))
    raise RetryError(f"none of {result.requests:,} requests succeeded: {codes}")


def _rate(text: str) -> float | str:
    try:
        return text if text == RECORDED else float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a number or {RECORDED}, got {text!r}"
        ) from error


def _check_together(args: argparse.Namespace) -> None:
    if args.slo and args.in_flight is not None:
        raise InputError("expected either --slo or --in-flight, got both")
    if args.rate == RECORDED and args.slo:
        raise InputError("expected either --slo or --rate recorded, got both")
    if args.rate == RECORDED and args.replay is None:
        raise InputError("expected --replay FILE with --rate recorded, got none")
    if args.replay is not None:
        for name in DRAWN:
            if getattr(args, name) not in (None, []):
                flag = "--" + name.replace("_", "-")
                raise InputError(f"{flag}: expected none with --replay, which sends a recording")


def _bench_options(args: argparse.Namespace) -> Any:
    """Make a `BenchOptions`. Its import is slow, because it imports numpy."""
    from embershard import bench

    objective = bench.parse_objective(args.slo) if args.slo else None
    _check_together(args)
    drawn = _set(args, TRAFFIC)
    for option, parse in (("examples", bench.parse_examples), ("zipf_alpha", bench.parse_ids)):
        if option in drawn:
            drawn[option] = parse(drawn[option])
    one_by_one = args.rate is None and args.in_flight is None
    recorded = args.rate == RECORDED
    return bench.BenchOptions(
        target=args.target,
        model=args.model,
        load=bench.LoadOptions(
            rate=None if recorded else args.rate,
            recorded_times=recorded,
            in_flight=max(1, args.threads or 1) if one_by_one else args.in_flight,
            **_set(args, LOAD),
        ),
        replay=args.replay,
        traffic=bench.TrafficOptions(
            lengths=bench.parse_spans("lengths", args.lengths, least=0, most=1_000_000),
            **drawn,
        ),
        id_ranges=bench.parse_spans("id-range", args.id_range, least=-(1 << 61), most=1 << 61),
        package=package_folder(args.package) if args.package else None,
        objective=objective,
        server_process=args.server_pid,
        allow_remote=args.allow_remote,
        **connection(args),
    )


def _set(args: argparse.Namespace, flags: Mapping[str, str]) -> dict[str, Any]:
    values = {option: getattr(args, flag) for option, flag in flags.items()}
    return {option: value for option, value in values.items() if value is not None}
