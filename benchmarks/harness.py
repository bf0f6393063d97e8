"""Compares two ways of doing one thing on a noisy machine.

Blocks of the two alternate A B B A, so that drift hits both; each neighbouring pair gives one
ratio, and the median of the ratios is quoted with a bootstrap interval. A probe of the machine runs
before and after: if it moved by more than 15 %, the run is void.
"""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["Comparison", "Side", "compare", "machine", "table"]

PAIRS = 16
BLOCK_SECONDS = 0.4
PROBE_LIMIT = 0.15
RESAMPLES = 2000

STREAM_BYTES = 128 << 20
STREAM_PASSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One way of doing it."""

    name: str

    run: Callable[[], int]
    """Does some of the work and returns how many units of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What was measured. Rates are units a second, medians over blocks."""

    what: str
    unit: str
    ours: str
    theirs: str
    our_rate: float
    their_rate: float
    ratio: float
    """Median of paired ratios ours / theirs."""

    low: float
    high: float
    """Bootstrap 95 % interval of the median."""

    probe_moved: float
    """How far the machine's speed moved during the run, as a share."""

    @property
    def void(self) -> bool:
        return self.probe_moved > PROBE_LIMIT


def compare(what: str, unit: str, *, ours: Side, theirs: Side) -> Comparison:
    """Run both, interleaved, after one warm-up block each."""
    before = _probe()
    for side in (ours, theirs):
        _rate(side)
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    for pair in range(PAIRS):
        order = (("ours", ours), ("theirs", theirs))
        for name, side in order if pair % 2 == 0 else reversed(order):
            rates[name].append(_rate(side))
    moved = abs(_probe() / before - 1)
    ratios = np.array(rates["ours"]) / np.array(rates["theirs"])
    low, high = _interval(ratios)
    return Comparison(
        what=what,
        unit=unit,
        ours=ours.name,
        theirs=theirs.name,
        our_rate=float(np.median(rates["ours"])),
        their_rate=float(np.median(rates["theirs"])),
        ratio=float(np.median(ratios)),
        low=low,
        high=high,
        probe_moved=moved,
    )


def machine(root: Path) -> dict[str, str]:
    """What a figure was measured on and with."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": f"{len(models)} x {models[0] if models else platform.processor()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "fbgemm": version("fbgemm-gpu-cpu"),
        "grpcio": version("grpcio"),
        "commit": commit or "unknown",
    }


def _rate(side: Side) -> float:
    done, started = 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < BLOCK_SECONDS:
        done += side.run()
    return done / seconds


def _probe() -> float:
    """Bytes a second that one thread reads from memory: the median of a few passes."""
    stream = np.ones(STREAM_BYTES // 8)
    rates = []
    for _ in range(STREAM_PASSES):
        started = time.perf_counter()
        stream.sum()
        rates.append(STREAM_BYTES / (time.perf_counter() - started))
    return float(np.median(rates))


def _interval(ratios: NDArray[np.float64]) -> tuple[float, float]:
    random = np.random.default_rng(0)
    medians = np.median(random.choice(ratios, (RESAMPLES, len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return float(low), float(high)


def table(comparisons: Sequence[Comparison]) -> str:
    """Markdown."""
    lines = [
        "| what | unit | ours | against | ratio | 95 % | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.what} | {each.unit} | {each.ours}: {each.our_rate:,.0f} "
        f"| {each.theirs}: {each.their_rate:,.0f} | {each.ratio:.2f} "
        f"| {each.low:.2f} .. {each.high:.2f} "
        f"| {'void: the machine moved' if each.void else ''} |"
        for each in comparisons
    ]
    return "\n".join(lines)
