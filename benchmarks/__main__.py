"""``python -m benchmarks [NAME...]``: runs benchmarks, each in a process of its own, and writes
RESULTS.md and results.json beside this file.

A benchmark is a file in ``rows/`` with ``measure() -> list[Row]``; one that needs
``.venv-peers`` says ``PEERS = True``, and one that runs only when it is asked for by its name
``BY_NAME_ONLY = True``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report, rows
from benchmarks.children import PEER_PYTHON, ROOT
from benchmarks.harness import Row

HERE = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 1 if a benchmark failed; what the others found is written all the same."""
    known = sorted(each.name for each in pkgutil.iter_modules(rows.__path__))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--peers", action="store_true", help="all that need .venv-peers")
    parser.add_argument("--dry", action="store_true", help="print the rows, write no file")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    if options.into:
        [name] = options.names
        options.into.write_text(json.dumps([asdict(row) for row in _measure(name)]))
        return 0
    names = options.names or [
        name
        for name in known
        if _needs_peers(name) == options.peers and not _says(name, "BY_NAME_ONLY")
    ]
    if any(map(_needs_peers, names)) and not PEER_PYTHON.exists():
        parser.error(f"{', '.join(names)} need {PEER_PYTHON.parent.parent}: `make bench-peers`")
    return _run(names, dry=options.dry)


def _run(names: Sequence[str], *, dry: bool) -> int:
    failed = []
    run = report.Run(
        machine=report.machine(),
        commit=report.commit(ROOT),
        command=" ".join(["python -m benchmarks", *sys.argv[1:]]),
        date=datetime.now(UTC).date().isoformat(),
    )
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            into = Path(folder) / "rows.json"
            command = [sys.executable, "-m", "benchmarks", name, "--into", str(into)]
            if subprocess.run(command, cwd=ROOT, check=False).returncode:
                failed.append(name)
                continue
            found = [Row(**row) for row in json.loads(into.read_text())]
        alone = report.merge({"runs": [], "rows": []}, name, found, run)
        print(report.markdown(alone).split("## Runs")[0].split("\n\n", 1)[1], flush=True)
        if not dry:
            report.write(HERE, report.merge(report.read(HERE), name, found, run))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def _measure(name: str) -> list[Row]:
    module = importlib.import_module(f"benchmarks.rows.{name}")
    measured: list[Row] = module.measure()
    return measured


def _needs_peers(name: str) -> bool:
    return _says(name, "PEERS")


def _says(name: str, mark: str) -> bool:
    return bool(getattr(importlib.import_module(f"benchmarks.rows.{name}"), mark, False))


if __name__ == "__main__":
    sys.exit(main())
