"""What those who ask notice of a version that is loaded and swapped in, and of a shadow: the 99th
percentile of the latency at half of the capacity, beside that of a server left alone."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.half_loaded import BLOCKS, LOAD, capacity, half_loaded, p99, server_of_two
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import Served, requests_of, serving
from benchmarks.watch import Watch
from embershard.bench import RunResult
from embershard.data import workload
from embershard.package.labels import write_label
from embershard.serving.control import order

__all__ = ["EXAMPLES", "SLOW_PERIOD_SECONDS", "Swaps", "measure"]

PERIOD_SECONDS = 0.2
"""From one swap's begin to the next one's: 200 in all blocks."""

SLOW_PERIOD_SECONDS = 1.0
"""Far more often than production does."""

SHADOW_SHARE = 0.05
EXAMPLES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row: a block of load during which something else goes on."""

    name: str
    title: str
    run: Callable[[], RunResult]
    note: Callable[[], str]
    """Called when all blocks have run."""


def measure() -> list[Row]:
    """Latencies in microseconds."""
    small = workload("small")
    first, other = package_of(small), package_of(small, seed=1)
    pool = requests_of(small, first, [EXAMPLES] * 500)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def served(name: str, second: Path, label: str = "stable", *flags: object) -> Served:
            command = server_of_two(folder / name, (first, second), label, *flags)
            return stack.enter_context(serving(command))

        quiet = served("quiet", first)
        rate = LOAD * capacity(quiet, pool)
        same, others = served("same", first), served("others", other)
        shadowed = served("shadowed", first, "shadow", "--shadow-share", SHADOW_SHARE)
        cases = [
            _swapping(
                Swaps(folder / "same", PERIOD_SECONDS),
                half_loaded(same, pool, rate),
                "p99",
                "versions swapped",
            ),
            _swapping(
                Swaps(folder / "same", SLOW_PERIOD_SECONDS),
                half_loaded(same, pool, rate),
                "each_second",
                "versions swapped",
            ),
            _swapping(
                Swaps(folder / "same", 0.0),
                half_loaded(same, pool, rate),
                "back_to_back",
                "versions swapped",
            ),
            _swapping(
                Swaps(folder / "others", 0.0),
                half_loaded(others, pool, rate),
                "other_tables",
                "versions with other tables",
            ),
            Case(
                name="shadow",
                title="with a shadow",
                run=half_loaded(shadowed, pool, rate),
                note=lambda: f"that gets {SHADOW_SHARE:.0%} of the requests",
            ),
        ]
        runs = [*(case.run for case in cases), half_loaded(quiet, pool, rate)]
        (*during, alone), watch = interleaved(runs, blocks=BLOCKS)
    return [_row(case, results, alone, watch) for case, results in zip(cases, during, strict=True)]


def _row(case: Case, during: Sequence[RunResult], alone: Sequence[RunResult], watch: Watch) -> Row:
    rate = alone[0].options.rate
    about = About(
        name=f"swaps/{case.name}",
        what=f"*small*, {EXAMPLES} examples, open loop at {LOAD:.0%} of the capacity, p99",
        unit="us",
        lower_is_better=True,
        note=f"{case.note()}; {rate:.0f} requests/s",
    )
    return paired_row(
        about, Series(case.title, p99(during)), Series("no change", p99(alone)), watch=watch
    )


def _swapping(swaps: Swaps, run: Callable[[], RunResult], name: str, title: str) -> Case:
    return Case(name=name, title=title, run=swaps.during(run), note=swaps.text)


class Swaps:
    """Versions 1 and 2 in turn."""

    def __init__(self, folder: Path, period_seconds: float) -> None:
        """
        Args:
            folder: of a server's repository and socket.
            period_seconds: from one swap's begin to the next one's, where it is over by then.
        """
        self._repository, self._socket = folder / "repository", folder / "control"
        self._model = next(self._repository.iterdir()).name
        self._period_seconds = period_seconds
        self._took: list[float] = []

    def text(self) -> str:
        """How many there were, and what one took."""
        pace = f"every {self._period_seconds:g} s" if self._period_seconds else "without a pause"
        return f"{len(self._took)} swaps, {pace}, {np.median(self._took):.2f} s each"

    def during(self, run: Callable[[], RunResult]) -> Callable[[], RunResult]:
        """The same block, with swaps from its beginning to its end."""

        def swapping() -> RunResult:
            with self._running():
                return run()

        return swapping

    @contextmanager
    def _running(self) -> Iterator[None]:
        over = threading.Event()
        failed: list[BaseException] = []

        def swap() -> None:
            try:
                due = time.monotonic()
                while not over.wait(max(0.0, due - time.monotonic())):
                    due += self._period_seconds
                    self._swap()
            except BaseException as error:  # Raised in the thread that measures.
                failed.append(error)

        thread = threading.Thread(target=swap)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failed:
            raise failed[0]

    def _swap(self) -> None:
        now = json.loads((self._repository / self._model / "labels.json").read_text())["stable"]
        write_label(self._repository, self._model, "stable", 3 - now)
        self._took.append(order(self._socket, {"order": "refresh"})["seconds"])
