"""results.json, to which every run adds its rows, and RESULTS.md, which is written from it."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Row

__all__ = ["Run", "commit", "machine", "markdown", "merge", "read", "write"]

PACKAGES = ("torch", "fbgemm-gpu-cpu", "grpcio", "numpy")
REMARKS = "REMARKS.md"

Results = dict[str, Any]
"""``{"runs": [Run, ...], "rows": [Row with "run": its index, ...]}``, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where rows come from."""

    machine: Mapping[str, str]
    commit: str
    command: str
    date: str
    """Of the day, ``YYYY-MM-DD``, UTC."""


def machine() -> dict[str, str]:
    """What figures are measured on and with."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = Path("/proc/meminfo").read_text().split(maxsplit=2)[1]
    found = {
        "cpu": f"{len(models)} x {models[0] if models else platform.processor()}",
        "memory": f"{int(memory) / 2**20:.0f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def commit(root: Path) -> str:
    """The commit that is checked out, with ``+`` if sources differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!benchmarks/RESULTS.md",
                  ":!benchmarks/results.json")  # fmt: skip
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def read(folder: Path) -> Results:
    """What is there; nothing at first."""
    path = folder / "results.json"
    empty: Results = {"runs": [], "rows": []}
    if not path.exists():
        return empty
    found: Results = json.loads(path.read_text())
    return found


def merge(results: Results, benchmark: str, rows: Sequence[Row], run: Run) -> Results:
    """``results`` with all rows of one benchmark replaced by these.

    Rows of other benchmarks keep the run that they come from; runs without rows are dropped.

    Raises:
        ValueError: a row's name is not ``<benchmark>/<row>``, or two have the same.
    """
    names = [row.name for row in rows]
    for name in names:
        if not name.startswith(f"{benchmark}/") or names.count(name) > 1:
            raise ValueError(f"expected names `{benchmark}/<row>`, each once, got {names}")
    runs = [*results["runs"], asdict(run)]
    kept = [row for row in results["rows"] if row["name"].split("/")[0] != benchmark]
    added = [{**asdict(row), "run": len(runs) - 1} for row in rows]
    merged = sorted(kept + added, key=lambda row: str(row["name"]).split("/")[0])
    used: list[dict[str, Any]] = []
    for row in merged:
        source = runs[row["run"]]
        if source not in used:
            used.append(source)
    merged = [{**row, "run": used.index(runs[row["run"]])} for row in merged]
    return {"runs": used, "rows": merged}


def write(folder: Path, results: Results) -> None:
    """Both files. What a person has written into REMARKS.md stands before the tables."""
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    remarks = folder / REMARKS
    about = remarks.read_text().strip() + "\n\n" if remarks.exists() else ""
    (folder / "RESULTS.md").write_text(f"# Results\n\n{about}{markdown(results)}")


def markdown(results: Results) -> str:
    """A table for each benchmark, then the runs."""
    rows = [(Row(**{k: v for k, v in row.items() if k != "run"}), row["run"]) for row in
            results["rows"]]  # fmt: skip
    lines = [
        "Values are medians over interleaved blocks, `±` their interquartile range over the",
        "median; the ratio is the median of paired ratios, ours by theirs, with a bootstrap 95 %",
        "interval, or of fewer than 10 pairs with the least and the largest of *all* of them.",
        "*Limit* is what this machine allows, measured before and after; *void* marks rows during",
        "which it, or where there is none the speed of memory, moved by more than 15 %.",
        "",
    ]
    for benchmark in dict.fromkeys(row.name.split("/")[0] for row, _ in rows):
        lines += [
            f"## {benchmark}",
            "",
            "| row | what | unit | ours | against | ratio (95 %) | limit | of limit | run |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_line(row, run) for row, run in rows if row.name.split("/")[0] == benchmark),
            "",
        ]
    lines += ["## Runs", "", "| run | date | commit | command | on |", "|---|---|---|---|---|"]
    for index, run in enumerate(results["runs"]):
        about = ", ".join(f"{name} {value}" for name, value in run["machine"].items())
        lines.append(
            f"| {index} | {run['date']} | {run['commit']} | `{run['command']}` | {about} |"
        )
    return "\n".join(lines) + "\n"


def _line(row: Row, run: int) -> str:
    what = row.what + (f" ({row.note})" if row.note else "")
    unit = row.unit + (", lower is better" if row.lower_is_better else "")
    against, ratio, limit, share = "", "", "", ""
    if row.their_value is not None:
        against = f"{row.theirs}: {_figure(row.their_value, row.their_spread)}"
    if row.ratio is not None:
        ends = f"{row.low:.2f} .. {row.high:.2f}"
        ratio = f"{row.ratio:.2f} ({ends}" + (")" if row.has_interval else f", all {row.pairs})")
    if row.limit is not None and row.limit_share is not None:
        limit, share = f"{row.limit_name}: {_figure(row.limit)}", f"{row.limit_share:.2f}"
    mark = f"{run}, **void**: the machine moved by {row.moved:.0%}" if row.void else f"{run}"
    ours = f"{row.ours}: {_figure(row.value, row.spread)}"
    name = row.name.split("/", 1)[1]
    return (
        f"| {name} | {what} | {unit} | {ours} | {against} | {ratio} | {limit} | {share} | {mark} |"
    )


def _figure(value: float, spread: float | None = None) -> str:
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}" + (f" ± {spread:.0%}" if spread is not None else "")
