"""`make bench`: runs every benchmark and writes RESULTS.md and results.json beside this file."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks import merging, training_step
from benchmarks.harness import machine, table

HERE = Path(__file__).parent


def main() -> None:
    """Run, print, write."""
    comparisons = []
    for benchmark in (merging, training_step):
        with tempfile.TemporaryDirectory() as folder:
            comparisons.append(benchmark.measure(Path(folder)))
        print(table(comparisons[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    where = machine(HERE.parent)
    about = ", ".join(f"{name} {value}" for name, value in where.items())
    text = f"# Results\n\n`make bench` on {about}.\n\n{table(comparisons)}\n"
    (HERE / "RESULTS.md").write_text(text)
    document = {"machine": where, "comparisons": [asdict(each) for each in comparisons]}
    (HERE / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
