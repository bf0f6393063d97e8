"""The command ``embershard bench``: its flags, and what it prints and writes."""

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
"""Exit code if no rate held the objective."""

START_OF_LINE: Final = "\r\x1b[K"
"""Clears the line of a terminal."""

DRAWN: Final = (
    *("examples", "ids", "lengths", "id_range", "package", "pool", "priority"),
    *("version", "label"),
)
"""Flags that shape drawn requests."""

# Flags by their options. A flag that is not set leaves the default.
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
        description="Put a server under load and measure it. Without a rate, an objective or a "
        "number in flight it sends one request after the other.",
    )
    add = command.add_argument
    target_help = "a loopback address, or any with --allow-remote"
    add("--target", required=True, metavar="HOST:PORT", help=target_help)
    add("--model", default="", help="(default: the only one served)")
    add("--version", type=int, metavar="N", help="(default: the default version, also after swaps)")
    add("--label", metavar="LABEL", help="measure the version with that label, as canary")
    how = command.add_mutually_exclusive_group()
    how.add_argument(
        "--rate",
        type=_rate,
        metavar="R|recorded",
        help="open loop: requests per second at random times; recorded: as --replay has them",
    )
    how.add_argument(
        "--in-flight", type=int, metavar="N", help="closed loop: this many wait for an answer"
    )
    add("--slo", metavar="'p99<10ms'", help="find the highest rate that holds; --rate: the first")
    add("--duration", type=float, metavar="SECONDS", help="(default: 10)")
    add("--requests", type=int, metavar="N", help="at most (default: 1000000)")
    add("--warmup", type=float, metavar="SECONDS", help="not counted (default: 1)")
    add("--timeout", type=float, metavar="SECONDS", help="of a request (default: 1)")
    add("--replay", type=Path, metavar="FILE", help="send what embershard serve --record wrote")
    add("--examples", metavar="N|A..B|mlperf", help="in a request (default: 1)")
    add("--ids", metavar="zipf:ALPHA|uniform", help="(default: zipf:1.05)")
    add(
        "--lengths",
        action="append",
        default=[],
        metavar="[FEATURE=]A..B",
        help="ids of a list (default: up to the model's limit, at most 50; 1 where it has none)",
    )
    add(
        "--id-range",
        action="append",
        default=[],
        metavar="[FEATURE=]A..B",
        help="ids to send where the server does not say which it knows",
    )
    add("--package", type=Path, help="the package that is served: its vocabularies' ids are sent")
    add("--priority", metavar="interactive|background", help="(default: interactive)")
    add("--pool", type=int, metavar="N", help="different requests (default: 1000)")
    add("--seed", type=int, help="(default: 0)")
    add("--max-in-flight", type=int, metavar="N", help="of an open loop (default: 4096)")
    add("--threads", type=int, help="each sends, and has one that receives (default: 1)")
    add("--connections", type=int, help="of each thread (default: 1)")
    add("--streams", type=int, metavar="N", help="send on so many (default: a call a request)")
    add("--protocol", metavar="embershard|oip|torchrec", help="to send in (default: embershard)")
    add("--server-pid", type=int, metavar="PID", help="(default: who listens on a local port)")
    add("--json", type=Path, metavar="FILE", help="write the report there; -: to standard output")
    add("--allow-remote", action="store_true", help="let the target be another machine")
    add_connecting(command.add_argument_group("security"))
    command.set_defaults(run=_bench)


def _bench(args: argparse.Namespace) -> int:
    """Runs a bench. What it measured is shown and written before an error or a signal ends it."""
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
    """The report, and the signal that ended the bench early."""
    from embershard.bench import BenchInterrupt, run_bench

    def show(text: str) -> None:
        """Write over the last line of a terminal."""
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

    # JSON on standard output has it to itself.
    is_json_printed = path == STANDARD_OUTPUT
    text = json.dumps(report_json(report), indent=2) + "\n"
    if file is not None:
        file.write(text)
    print(report_table(report), end="", file=sys.stderr if is_json_printed else sys.stdout)
    if is_json_printed:
        print(text, end="")


def _check_served(report: "BenchReport") -> None:
    """Raise an error if the server is gone, or if a run without an objective had no good answer."""
    result = report.result
    if report.lost:
        raise UnavailableError(f"the server does not answer any more: {report.lost}")
    if report.options.objective is not None or result.ok:
        return
    if not result.requests:
        within = f"{result.window_seconds:g} s"
        raise InputError(f"no request was due in {within}: use a longer --duration")
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
                raise InputError(f"--replay sends what was recorded: expected no {flag} with it")


def _bench_options(args: argparse.Namespace) -> Any:
    """A `BenchOptions`; the class loads numpy, which other commands do without."""
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
    """The options whose flags were set."""
    values = {option: getattr(args, flag) for option, flag in flags.items()}
    return {option: value for option, value in values.items() if value is not None}
