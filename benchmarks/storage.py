"""Files read from storage rather than from the page cache."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.watch import Limit

__all__ = ["drop_cached", "storage_speed", "table_files"]

BLOCK_BYTES = 8 << 20
PASSES = 3


def table_files(package: Path) -> list[Path]:
    """Every chunk of every table."""
    return sorted((package / "tables").glob("*/*.safetensors"))


def drop_cached(files: Sequence[Path]) -> None:
    """Asks the kernel to forget files that are written back; whoever has them mapped keeps them."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def storage_speed(files: Sequence[Path], *, cold: bool = True) -> Limit:
    """How fast they can be read, one after the other, in MB/s: the median of a few passes.

    Args:
        files: read in full each time.
        cold: from storage; else from the page cache.
    """

    def measure() -> float:
        speeds = []
        for _ in range(PASSES):
            if cold:
                drop_cached(files)
            speeds.append(_read(files) / 1e6)
        return float(np.median(speeds))

    return Limit(name="sequential read", measure=measure)


def _read(files: Sequence[Path]) -> float:
    """Bytes a second, in large blocks."""
    buffer = bytearray(BLOCK_BYTES)
    done, started = 0, time.perf_counter()
    for file in files:
        with file.open("rb", buffering=0) as stream:
            while count := stream.readinto(buffer):
                done += count
    return done / (time.perf_counter() - started)
