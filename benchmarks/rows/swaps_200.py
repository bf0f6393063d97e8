"""Two hundred versions swapped in at half of the capacity, one a second; and what that costs."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.blocks import interleaved
from benchmarks.half_loaded import LOAD, capacity, half_loaded, p99, server_of_two
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.rows.swaps import EXAMPLES, SLOW_PERIOD_SECONDS, Swaps
from benchmarks.servers import requests_of, serving
from embershard.data import workload

__all__ = ["BY_NAME_ONLY", "measure"]

BY_NAME_ONLY = True

BLOCKS = 40
"""Of five swaps each."""


def measure() -> list[Row]:
    """The 99th percentile of the latency, in microseconds."""
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [EXAMPLES] * 500)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        swapped, quiet = (
            stack.enter_context(serving(server_of_two(folder / name, (package, package), "stable")))
            for name in ("swapped", "quiet")
        )
        rate = LOAD * capacity(quiet, pool)
        swaps = Swaps(folder / "swapped", SLOW_PERIOD_SECONDS)
        runs = [swaps.during(half_loaded(swapped, pool, rate)), half_loaded(quiet, pool, rate)]
        (during, alone), watch = interleaved(runs, blocks=BLOCKS)
    about = About(
        name="swaps_200/p99",
        what=f"*small*, {EXAMPLES} examples, open loop at {LOAD:.0%} of the capacity, p99",
        unit="us",
        lower_is_better=True,
        note=f"{swaps.text()}; {rate:.0f} requests/s",
    )
    return [
        paired_row(
            about,
            Series("versions swapped", p99(during)),
            Series("no change", p99(alone)),
            watch=watch,
        )
    ]
