"""``python -m benchmarks.profile_server WORKLOAD``: where the time of a request goes.

Serves a workload under a closed loop, samples the server's stacks with Linux's `perf`, and prints
the share of each room of the server. Needs `perf`, and the right to use it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from benchmarks.children import ROOT
from benchmarks.packages import package_of
from benchmarks.rooms_of_stacks import shares
from benchmarks.servers import (
    embershard_serve,
    in_protocol,
    noop_server,
    requests_of,
    send,
    serving,
)
from embershard.bench import LoadOptions, RunResult
from embershard.bench.load_options import PROTOCOLS
from embershard.data import WORKLOADS, workload

SYMBOLS = "build/extension/serving/predictor/binding/_predictor*.so"
"""The extension before its installation stripped it."""

SAMPLES_PER_SECOND = 499
STACK_BYTES = 8192
WARMUP_SECONDS = 1.5
LEAVES = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_server")
    parser.add_argument("workload", choices=sorted(WORKLOADS))
    parser.add_argument("--examples", type=int, help="of a request (default: the workload's)")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1, help="of the dense program (default: 1)")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="embershard")
    parser.add_argument("--no-model", action="store_true", help="only what is around the model")
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args(arguments)
    if shutil.which("perf") is None:
        parser.error("expected `perf` to be installed (Debian: linux-perf)")
    profiled = workload(options.workload)
    package = package_of(profiled)
    examples = options.examples or profiled.examples
    pool = requests_of(profiled, package, [examples] * max(16, 1000 // examples))
    load = LoadOptions(
        in_flight=options.in_flight,
        duration_seconds=WARMUP_SECONDS + options.seconds,
        warmup_seconds=WARMUP_SECONDS,
        timeout_seconds=60,
        protocol=options.protocol,
    )
    results: list[RunResult] = []
    command = embershard_serve(package, "--threads", str(options.threads))
    with serving(noop_server(package) if options.no_model else command) as served:
        pool = in_protocol(served, pool, options.protocol)
        sender = threading.Thread(
            target=lambda: results.append(send(served, pool, load)), daemon=True
        )
        sender.start()
        text = sampled(served.process, after=2 * WARMUP_SECONDS, seconds=options.seconds / 2)
        sender.join()
    if not results:
        return 1
    without = ", no model" if options.no_model else ""
    words = f"{examples} examples, {options.in_flight} in flight, {options.protocol}"
    print(f"{profiled.name}{without}, {words}")
    print(report(text, results[0]))
    return 0


def sampled(process: int, *, after: float, seconds: float) -> str:
    """Stacks of a process, as `perf script` prints them.

    Args:
        after: when to begin, in seconds from now.
        seconds: for how long.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        perf = ["perf", "--buildid-dir", folder]
        for library in ROOT.glob(SYMBOLS):
            _run([*perf, "buildid-cache", "--add", str(library)])
        _run(["sleep", str(after)])
        _run(
            ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", str(SAMPLES_PER_SECOND),
             "--call-graph", f"dwarf,{STACK_BYTES}", "--output", str(data), "--pid", str(process),
             "--", "sleep", str(seconds)]
        )  # fmt: skip
        return _run(
            [*perf, "script", "--no-inline", "--input", str(data), "--fields", "tid,ip,sym,dso"]
        )


def report(text: str, result: RunResult) -> str:
    """Markdown."""
    assert result.server_cpu_seconds is not None
    each_us = result.server_cpu_seconds / result.ok * 1e6
    lines = [
        f"{result.ok_per_second:,.0f} requests/s, {each_us:,.1f} us of the server's CPU time each, "
        f"{result.server_cpu_seconds / result.elapsed_seconds:.2f} cores",
        "",
        "| room | share | us a request | most of it in |",
        "|---|---|---|---|",
    ]
    for room, (share, leaves) in shares(text).items():
        most = ", ".join(f"`{name[:48]}` {part:.1%}" for name, part in leaves[:LEAVES])
        lines.append(f"| {room} | {share:.1%} | {share * each_us:,.1f} | {most} |")
    return "\n".join(lines)


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
