"""What those who ask notice of a version that is loaded and swapped in, and of a shadow: the 99th
percentile of the latency at half of the capacity, beside that of a server left alone."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import (
    PATIENCE_SECONDS,
    Served,
    closed_loop,
    requests_of,
    send,
    serving,
)
from benchmarks.watch import Watch
from embershard.bench import LoadOptions, RunResult
from embershard.bench.pool import PooledRequest
from embershard.data import workload
from embershard.package.labels import write_label
from embershard.package.sealing import link_or_copy, seal
from embershard.serving.control import order

__all__ = ["measure"]

BLOCKS = 10
BLOCK_SECONDS = 4.0
CAPACITY_SECONDS = 2.0
LOAD = 0.5
PERIOD_SECONDS = 0.2
"""From one swap's begin to the next one's: 200 in all blocks."""

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
            command = _server(folder / name, (first, second), label, *flags)
            return stack.enter_context(serving(command))

        quiet = served("quiet", first)
        rate = LOAD * _capacity(quiet, pool)
        same, others = served("same", first), served("others", other)
        shadowed = served("shadowed", first, "shadow", "--shadow-share", SHADOW_SHARE)
        cases = [
            _swapping(
                Swaps(folder / "same", PERIOD_SECONDS),
                _half_loaded(same, pool, rate),
                "p99",
                "versions swapped",
            ),
            _swapping(
                Swaps(folder / "same", 0.0),
                _half_loaded(same, pool, rate),
                "back_to_back",
                "versions swapped",
            ),
            _swapping(
                Swaps(folder / "others", 0.0),
                _half_loaded(others, pool, rate),
                "other_tables",
                "versions with other tables",
            ),
            Case(
                name="shadow",
                title="with a shadow",
                run=_half_loaded(shadowed, pool, rate),
                note=lambda: f"that gets {SHADOW_SHARE:.0%} of the requests",
            ),
        ]
        runs = [*(case.run for case in cases), _half_loaded(quiet, pool, rate)]
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
        about, Series(case.title, _p99(during)), Series("no change", _p99(alone)), watch=watch
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


def _server(
    folder: Path, packages: tuple[Path, Path], label: str, *flags: object
) -> list[str | Path]:
    """The command of a server over the two as versions 1 and 2; the second one has the label."""
    repository = folder / "repository"
    model = packages[0].parent.name
    for version, package in enumerate(packages, start=1):
        out = repository / model / str(version)
        shutil.copytree(
            package, out, copy_function=_link, ignore=shutil.ignore_patterns("manifest.*")
        )
        document = json.loads((package / "manifest.json").read_text())
        seal(out, {**document, "version": version})
    write_label(repository, model, "stable", 1)
    if label != "stable":
        write_label(repository, model, label, 2)
    words = ["serve", repository, "--control", folder / "control", "--threads", 1, "--port", 0]
    return [sys.executable, "-m", "embershard", *map(str, [*words, *flags])]


def _link(file: str, to: str) -> None:
    link_or_copy(Path(file), Path(to))


def _capacity(served: Served, pool: Sequence[PooledRequest]) -> float:
    """Requests a second that a closed loop gets answered."""
    result = closed_loop(served, pool, in_flight=16, seconds=CAPACITY_SECONDS)()
    return result.ok / result.elapsed_seconds


def _half_loaded(
    served: Served, pool: Sequence[PooledRequest], rate: float
) -> Callable[[], RunResult]:
    load = LoadOptions(
        rate=rate,
        duration_seconds=BLOCK_SECONDS,
        warmup_seconds=0.2,
        timeout_seconds=PATIENCE_SECONDS,
    )
    return lambda: send(served, pool, load)


def _p99(results: Sequence[RunResult]) -> list[float]:
    return [each.latency.percentile_seconds(99) * 1e6 for each in results]
