"""Formats the results of a run as a table, and writes the values of all blocks as JSON."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.harness import Row
from benchmarks.statistics import Values, spread
from embershard.formatting import table_lines
from embershard.planner.machine import processor_name

PACKAGES: Final = ("torch", "fbgemm-gpu-cpu", "grpcio", "numpy", "scipy")
BUSY_SHARE: Final = 0.9
HEAD: Final = ("row", "what", "figure", "ours", "against", "ratio (95 %)", "bound", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    machine: Mapping[str, str]
    commits: Sequence[str]
    """Commit of this checkout, then of the other one if there is one."""

    command: str
    date: str
    """``YYYY-MM-DD HH:MM``, UTC."""


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    details = {
        "cpu": f"{os.cpu_count()} x {processor_name()}",
        "memory": f"{memory / 2**30:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            details[package] = version(package)
        except PackageNotFoundError:
            details[package] = "absent"
    return details


def write(folder: Path, name: str, run: Run, rows: Sequence[Row]) -> Path:
    """Write ``<name>-<date>.json`` with all blocks, and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{''.join(filter(str.isdigit, run.date))}.json"
    written = [
        {
            **asdict(row),
            "ratio": row.estimate and row.estimate._asdict(),
            "bound": str(row.bound),
            "verdict": verdict(row),
        }
        for row in rows
    ]
    document = {**asdict(run), "rows": written}
    path.write_text(json.dumps(document, indent=1, default=np.ndarray.tolist) + "\n")
    return path


def table(run: Run, rows: Sequence[Row]) -> str:
    """A Markdown table of medians ± interquartile ranges, and of ratios with their intervals."""
    about = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    source = f"{' against '.join(run.commits)}, {run.date}, `{run.command}`"
    return "\n".join([*table_lines(HEAD, map(_cells, rows)), "", f"{source}: {about}", ""])


def verdict(row: Row) -> str:
    """``FAILED`` if the bound is missed, ``not judged`` for too few pairs, else empty."""
    if str(row.bound) and not row.judged:
        return "not judged"
    return "FAILED" if row.failed else ""


def _cells(row: Row) -> tuple[str, ...]:
    against, ratio = "", ""
    if row.their_values is not None:
        against = f"{row.theirs}: {_figure(row.their_values)}"
    if estimate := row.estimate:
        ratio = f"{estimate.ratio:.2f} ({estimate.low:.2f} .. {estimate.high:.2f}"
        ratio += f", {len(row.values)} pairs)"
    return (
        row.name.split("/", 1)[1],
        row.what + _cores(row.notes),
        row.figure.replace("_", " "),
        f"{row.ours}: {_figure(row.values)}",
        against,
        ratio,
        str(row.bound),
        verdict(row),
    )


def _cores(notes: Mapping[str, float]) -> str:
    if "server_cores" not in notes:
        return ""
    text = f"; cores used: server {notes['server_cores']:.2f}, tool {notes['tool_cores']:.2f}"
    if (share := notes["tool_busiest_thread"]) > BUSY_SHARE:
        text += f"; the tool was the limit, its busiest thread ran {share:.0%} of the time"
    return text


def _figure(values: Values) -> str:
    value, width = float(np.median(values)), spread(values)
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}" + (f" ± {width:.0%}" if width is not None else "")
