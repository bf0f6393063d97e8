"""Runs benchmarks, prints their rows, and writes the values of all blocks to
build/benchmarks/results."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report
from benchmarks.checkout import PEER_PYTHON, ROOT, THIS, Checkout
from benchmarks.harness import Bench, load_benchmarks
from embershard.commands import Parser
from embershard.errors import ConfigError

RESULTS = ROOT / "build" / "benchmarks" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a row failed, but write all rows."""
    known = load_benchmarks()
    parser = Parser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="ROW", help=f"{', '.join(sorted(known))} (default: all)")
    add(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="compare this checkout with another one, interleaved; a row fails if its whole "
        "interval is below 0.97",
    )
    add("--peers", action="store_true", help="run the rows that need .venv-peers")
    add("--blocks", type=int, help="blocks of each side (default: set by each row)")
    add("--seconds", type=float, help="length of a block (default: set by each row)")
    add("--results", type=Path, default=RESULTS, metavar="FOLDER",
        help="folder for the raw results (default: build/benchmarks/results)")  # fmt: skip
    words = sys.argv[1:] if arguments is None else arguments
    args = parser.parse_args(words)
    if unknown := sorted(set(args.names) - set(known)):
        parser.error(f"expected rows of {', '.join(sorted(known))}; got {', '.join(unknown)}")
    names = args.names or [
        name
        for name, declared in sorted(known.items())
        if declared.peers == args.peers and not declared.by_name_only
    ]
    other = Checkout.at(args.against) if args.against else None
    peers = [name for name in names if known[name].peers]
    if peers and other is None and not PEER_PYTHON.exists():
        parser.error(f"{', '.join(peers)}: expected {PEER_PYTHON}; run `make bench-peers`")
    run = report.Run(
        machine=report.machine(),
        commits=[checkout.commit() for checkout in (THIS, other) if checkout is not None],
        command=" ".join(["python -m benchmarks", *words]),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
    )
    failed = []
    for name in names:
        bench = Bench(name, other, args.blocks, args.seconds)
        known[name].measure(bench)
        print(f"## {name}\n\n{report.table(run, bench.rows)}", flush=True)
        print(f"blocks: {report.write(args.results, name, run, bench.rows)}", file=sys.stderr)
        failed += [row.name for row in bench.rows if row.failed]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConfigError as error:
        sys.exit(str(error))
