"""``python -m benchmarks [ROW...]``: runs benchmarks, prints their rows, and writes every block's
values to build/benchmarks/results."""

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
    """The exit status: 1 if a row failed. The other rows are written all the same."""
    known = load_benchmarks()
    parser = Parser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="ROW", help=f"of {', '.join(sorted(known))} (default: all)")
    add(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="compare this checkout with another one, interleaved; a row fails if its "
        "interval lies wholly below 0.97",
    )
    add("--peers", action="store_true", help="the rows that need .venv-peers")
    add("--blocks", type=int, help="of each side (default: what the row declares)")
    add("--seconds", type=float, help="of each block (default: what the row declares)")
    add("--results", type=Path, default=RESULTS, metavar="FOLDER",
        help="for the raw results (default: build/benchmarks/results)")  # fmt: skip
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"expected rows of {', '.join(sorted(known))}; got {', '.join(unknown)}")
    names = options.names or [
        name
        for name, each in sorted(known.items())
        if each.peers == options.peers and not each.by_name_only
    ]
    other = Checkout.at(options.against) if options.against else None
    peers = [name for name in names if known[name].peers]
    if peers and other is None and not PEER_PYTHON.exists():
        parser.error(f"{', '.join(peers)}: expected {PEER_PYTHON}; run `make bench-peers`")
    run = report.Run(
        machine=report.machine(),
        commits=[each.commit() for each in (THIS, other) if each is not None],
        command=" ".join(["python -m benchmarks", *given]),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
    )
    failed = []
    for name in names:
        bench = Bench(name, other, options.blocks, options.seconds)
        known[name].measure(bench)
        print(f"## {name}\n\n{report.table(run, bench.rows)}", flush=True)
        print(f"blocks: {report.write(options.results, name, run, bench.rows)}", file=sys.stderr)
        failed += [row.name for row in bench.rows if row.failed]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConfigError as error:
        sys.exit(str(error))
