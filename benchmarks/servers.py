"""Servers in processes of their own, and the load tool on them."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.children import ROOT
from benchmarks.packages import message
from benchmarks.programs import program
from embershard.bench import LoadOptions, RunResult, run_load
from embershard.bench.load_options import Protocol
from embershard.bench.open_inference import infer_requests
from embershard.bench.pool import PooledRequest
from embershard.bench.target import Target, ask_model, find_target
from embershard.bench.torchrec import torchrec_requests
from embershard.data import Workload
from embershard.package import Package, SampleRequest

__all__ = [
    "PATIENCE_SECONDS",
    "Served",
    "closed_loop",
    "cores_used",
    "echo_server",
    "embershard_serve",
    "in_protocol",
    "noop_server",
    "per_cpu_second",
    "pooled",
    "requests_a_batch",
    "requests_of",
    "send",
    "serving",
]

SERVING = re.compile(r"^serving .*?\bon (?P<address>[^ ,]+:\d+)")

WARMUP_SECONDS = 0.1
"""Of each block: the load tool connects anew."""

PATIENCE_SECONDS = 10.0

BUSY_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers."""

    target: Target
    process: int

    metrics: str = ""
    """Where its metrics are; of ours, served with ``--metrics-port``."""

    others: tuple[int, ...] = ()
    """Further processes whose CPU time counts as the server's."""


@contextmanager
def serving(command: Sequence[str | Path]) -> Iterator[Served]:
    """Starts a server that says ``serving ... on HOST:PORT`` first, and ends it afterwards.

    Args:
        command: runs in the root of the repository.

    Raises:
        RuntimeError: it ended before it listened.
    """
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        said = SERVING.match(line)
        if said is None:
            raise RuntimeError(f"{command[0]}: expected `serving ... on HOST:PORT`, got {line!r}")
        metrics = ""
        if "--metrics-port" in command:
            metrics = f"{process.stdout.readline().split()[-1]}metrics"
        yield Served(find_target(said["address"]), process.pid, metrics)
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def requests_a_batch(served: Served, run: Callable[[], object]) -> float:
    """How many a server merges, on average, while something runs. REQUIRES: it has ``metrics``."""
    before = _counted(served.metrics)
    run()
    requests, batches = (
        after - then for after, then in zip(_counted(served.metrics), before, strict=True)
    )
    return requests / batches


def _counted(metrics: str) -> tuple[float, float]:
    """Requests that were in batches, and batches, so far."""
    with urllib.request.urlopen(metrics, timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    histogram = "embershard_batch_requests"
    requests, batches = (
        float(re.findall(rf"^{histogram}_{what}{{.*}} (.*)$", text, re.MULTILINE)[0])
        for what in ("sum", "count")
    )
    return requests, batches


def embershard_serve(package: Path, *flags: str) -> list[str | Path]:
    """The command that serves a package on a free port.

    Args:
        package: ``<repository>/<model>/<version>``.
        flags: as `embershard serve` knows them.
    """
    repository, model, version = package.parent.parent, package.parent.name, package.name
    return [sys.executable, "-m", "embershard", "serve", repository, "--model", model,
            "--model-version", version, "--port", "0", *flags]  # fmt: skip


def noop_server(package: Path) -> list[str | Path]:
    """The command of our server over a model that does nothing."""
    return [program("noop_server"), package]


def echo_server(
    api: Literal["async", "callback", "aio"], package: Path, *, busy_us: int = 0
) -> list[str | Path]:
    """The command of a server that answers requests for a package with as many zeros.

    Args:
        api: what it is made of.
        package: whose answers these look like.
        busy_us: for so many microseconds a thread is busy before each answer, with ``callback``.
    """
    manifest = Package.open(package).manifest
    names = [manifest.model, *(output.name for output in manifest.outputs)]
    if api == "aio":
        return [sys.executable, "-m", "benchmarks.peers.aio_echo", *names]
    return [program("echo_server"), f"{api}:{busy_us}" if busy_us else api, *names]


def requests_of(
    workload: Workload, package: Path, sizes: Sequence[int], *, seed: int = 2
) -> list[PooledRequest]:
    """Requests of a workload, one of each size, for the load tool to send in turn."""
    random = np.random.default_rng(seed)
    return pooled([workload.request(random, size) for size in sizes], package)


def in_protocol(
    served: Served, pool: list[PooledRequest], protocol: Protocol
) -> list[PooledRequest]:
    """Requests of our own protocol, for the model that a server has, in another one."""
    model = ask_model(served.target, "", timeout_seconds=PATIENCE_SECONDS)
    match protocol:
        case "embershard":
            return pool
        case "oip":
            return infer_requests(model, pool)
        case "torchrec":
            return torchrec_requests(model, pool)


def pooled(requests: Sequence[SampleRequest], package: Path) -> list[PooledRequest]:
    """Requests for a package, for the load tool to send in turn."""
    fingerprint = int(Package.open(package).manifest.fingerprint, 16)
    return [
        PooledRequest(message(each, fingerprint), each.num_examples, len(each.values))
        for each in requests
    ]


def send(
    served: Served, pool: Sequence[PooledRequest], load: LoadOptions, *, all_ok: bool = True
) -> RunResult:
    """One run of the load tool, the server's CPU time with it.

    Raises:
        RuntimeError: where ``all_ok``, a request was not answered OK.
    """
    processes = [served.process, *served.others]
    result = run_load(served.target, pool, load, server_processes=processes)
    if all_ok and (result.ok == 0 or result.ok < result.requests):
        raise RuntimeError(
            f"expected answers OK, got {dict(result.by_code)}: {dict(result.messages)}"
        )
    return result


def closed_loop(
    served: Served,
    pool: Sequence[PooledRequest],
    *,
    in_flight: int,
    seconds: float,
    streams: int = 0,
    protocol: Protocol = "embershard",
) -> Callable[[], RunResult]:
    """A side of `interleaved`: so many requests wait for an answer at any time.

    Args:
        streams: that carry them. 0: each is a call.
        protocol: of the pool's messages.
    """
    load = LoadOptions(
        in_flight=in_flight,
        streams=streams,
        protocol=protocol,
        duration_seconds=seconds,
        warmup_seconds=WARMUP_SECONDS,
        timeout_seconds=PATIENCE_SECONDS,
    )
    return lambda: send(served, pool, load)


def per_cpu_second(result: RunResult) -> float:
    """Examples answered for each second of the server's processors."""
    assert result.server_cpu_seconds is not None
    return result.examples_ok / result.server_cpu_seconds


def cores_used(results: Sequence[RunResult]) -> str:
    """For a row's note: what server and load tool took, and whether the tool was the limit."""
    clock = sum(each.elapsed_seconds for each in results)
    server = sum(each.server_cpu_seconds or 0.0 for each in results) / clock
    client = sum(each.client_cpu_seconds for each in results) / clock
    text = f"cores used: server {server:.2f}, load tool {client:.2f}"
    busiest = float(np.median([each.busiest_thread_share for each in results]))
    if busiest > BUSY_SHARE:
        text += f"; the tool was the limit, its busiest thread ran {busiest:.0%} of the time"
    elif server + client > BUSY_SHARE * results[0].cores:
        text += "; they took the cores from each other"
    return text
