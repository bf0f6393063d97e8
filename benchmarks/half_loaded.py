"""A server of two versions at half of its capacity, and the latency that those notice who ask."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.servers import PATIENCE_SECONDS, Served, closed_loop, send
from embershard.bench import LoadOptions, RunResult
from embershard.bench.pool import PooledRequest
from embershard.package.labels import write_label
from embershard.package.sealing import link_or_copy, seal

__all__ = ["BLOCKS", "LOAD", "capacity", "half_loaded", "p99", "server_of_two"]

BLOCKS: Final = 10
BLOCK_SECONDS: Final = 4.0
CAPACITY_SECONDS: Final = 2.0
LOAD: Final = 0.5
"""Of the capacity."""


def server_of_two(
    folder: Path, packages: tuple[Path, Path], label: str, *flags: object
) -> list[str | Path]:
    """The command of a server over the two as versions 1 and 2; the second one has the label.

    Args:
        folder: an empty one; ``repository`` and the socket ``control`` come into it.
    """
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


def capacity(served: Served, pool: Sequence[PooledRequest]) -> float:
    """Requests a second that a closed loop gets answered."""
    result = closed_loop(served, pool, in_flight=16, seconds=CAPACITY_SECONDS)()
    return result.ok / result.elapsed_seconds


def half_loaded(
    served: Served, pool: Sequence[PooledRequest], rate: float
) -> Callable[[], RunResult]:
    """Blocks of an open loop."""
    load = LoadOptions(
        rate=rate,
        duration_seconds=BLOCK_SECONDS,
        warmup_seconds=0.2,
        timeout_seconds=PATIENCE_SECONDS,
    )
    return lambda: send(served, pool, load)


def p99(results: Sequence[RunResult]) -> list[float]:
    """Of each, in microseconds."""
    return [each.latency.percentile_seconds(99) * 1e6 for each in results]


def _link(file: str, to: str) -> None:
    link_or_copy(Path(file), Path(to))
