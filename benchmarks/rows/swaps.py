"""What those who ask notice of a version that is loaded and swapped in, and of a shadow: the 99th
percentile of the latency at half of the capacity, beside that of the same server left alone."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.blocks import interleaved
from benchmarks.harness import About, Row, Series, paired_row
from benchmarks.packages import package_of
from benchmarks.servers import Served, closed_loop, requests_of, send, serving
from embershard.bench import LoadOptions, RunResult
from embershard.bench.pool import PooledRequest
from embershard.data import workload
from embershard.package.labels import write_label
from embershard.package.sealing import seal
from embershard.serving.control import order

__all__ = ["measure"]

BLOCKS = 10
BLOCK_SECONDS = 2.0
CAPACITY_SECONDS = 2.0
LOAD = 0.5
SHADOW_SHARE = 0.05
EXAMPLES = 16


def measure() -> list[Row]:
    """Latencies in microseconds: with swaps one after the other, and with a shadow."""
    small = workload("small")
    package = package_of(small)
    pool = requests_of(small, package, [EXAMPLES] * 500)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        swapped = stack.enter_context(serving(_server(folder / "swapped", package, "stable")))
        quiet = stack.enter_context(serving(_server(folder / "quiet", package, "stable")))
        shadowed = stack.enter_context(
            serving(_server(folder / "shadowed", package, "shadow", "--shadow-share", SHADOW_SHARE))
        )
        rate = LOAD * _capacity(quiet, pool)
        swaps = Swaps(folder / "swapped")
        runs = [
            swaps.during(_half_loaded(swapped, pool, rate)),
            _half_loaded(shadowed, pool, rate),
            _half_loaded(quiet, pool, rate),
        ]
        (during, beside, alone), watch = interleaved(runs, blocks=BLOCKS)
    what = f"*small*, {EXAMPLES} examples, open loop at {LOAD:.0%} of the capacity, p99"
    return [
        paired_row(
            About(name=f"swaps/{name}", what=what, unit="us", lower_is_better=True, note=note),
            Series(title, _p99(results)),
            Series("no change", _p99(alone)),
            watch=watch,
        )
        for name, title, results, note in (
            ("p99", "versions swapped", during, f"{swaps.done} swaps, one after the other"),
            ("shadow", "with a shadow", beside, f"that gets {SHADOW_SHARE:.0%} of the requests"),
        )
    ]


class Swaps:
    """Versions 1 and 2 in turn, as fast as they are loaded."""

    def __init__(self, folder: Path) -> None:
        self._repository, self._socket = folder / "repository", folder / "control"
        self._model = next(self._repository.iterdir()).name
        self.done = 0

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
                while not over.is_set():
                    write_label(self._repository, self._model, "stable", 1 + self.done % 2)
                    order(self._socket, {"order": "refresh"})
                    self.done += 1
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


def _server(folder: Path, package: Path, label: str, *flags: object) -> list[str | Path]:
    """The command of a server over two versions of the package; the second one has the label."""
    repository = folder / "repository"
    model = package.parent.name
    for version in (1, 2):
        out = repository / model / str(version)
        shutil.copytree(package, out)
        document = json.loads((out / "manifest.json").read_text())
        seal(out, {**document, "version": version})
    write_label(repository, model, "stable", 1)
    if label != "stable":
        write_label(repository, model, label, 2)
    words = ["serve", repository, "--control", folder / "control", "--threads", 1, "--port", 0]
    return [sys.executable, "-m", "embershard", *map(str, [*words, *flags])]


def _capacity(served: Served, pool: Sequence[PooledRequest]) -> float:
    """Requests a second that a closed loop gets answered."""
    result = closed_loop(served, pool, in_flight=16, seconds=CAPACITY_SECONDS)()
    return result.ok / result.elapsed_seconds


def _half_loaded(
    served: Served, pool: Sequence[PooledRequest], rate: float
) -> Callable[[], RunResult]:
    load = LoadOptions(rate=rate, duration_seconds=BLOCK_SECONDS, warmup_seconds=0.2)
    return lambda: send(served, pool, load)


def _p99(results: Sequence[RunResult]) -> list[float]:
    return [each.latency.percentile_seconds(99) * 1e6 for each in results]
