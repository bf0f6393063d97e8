"""Measures lookups and updates of fused tables, and lookups of a server, on this machine.

While one process is measured, others do the same work on the other cores, since the ranks of a host
train at the same time and share its caches and memory bandwidth. ``python -m
embershard.planner.measurements`` is one of the other processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from threading import Timer
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from embershard.kernels import FusedOptimizer, build_fused_tables
from embershard.malloc_options import set_malloc_options
from embershard.package.row_format import RowFormat, WeightType

CACHES = (1 << 21, 1 << 25)
"""Bytes of the caches that are modelled: a core's own cache, and its part of the last one."""

TABLE_BYTES = (1 << 20, 1 << 23, 1 << 26, 1 << 28)
"""Bytes of the measured tables, from one that fits the first cache to one that fits none."""

DIMS = (16, 40, 64, 128, 256)
SIZES = ((1, 4096), (1, 512), (8, 512), (8, 128), (40, 256))
"""Ids a bag, and number of bags."""

LOOKUP_REPEATS = 7


class Measured(NamedTuple):
    """Size of an operation, and two measurements of its seconds."""

    ids: int
    bags: int
    row_bytes: int
    forward: tuple[float, float] = (0.0, 0.0)
    backward: tuple[float, float] = (0.0, 0.0)
    rows: int = 0
    """Distinct rows among the ids, for a pass that visits each once. 0: it visits the row of every
    id."""

    missed: tuple[float, ...] = ()
    """For each cache, the share of ids whose row is outside it."""


class LookupSeconds(Protocol):
    """Type of ``embershard.serving.local.lookup_seconds``, which the planner does not import."""

    def __call__(
        self,
        rows: NDArray[np.uint8],
        ids: NDArray[np.int64],
        offsets: NDArray[np.int64],
        *,
        weights: str,
        dim: int,
    ) -> list[float]:
        """CPU seconds of each batch of ``ids``."""


def measure_lookups(lookup_seconds: LookupSeconds, weights: WeightType) -> Iterator[Measured]:
    """Measure a server's lookups on this thread, in tables of one weight type. Yields the median
    seconds for each table size, vector width and batch shape."""
    for table_bytes in TABLE_BYTES:
        yield from _measure(lookup_seconds, weights, table_bytes)


def missed_of(table_bytes: int, caches: tuple[int, ...] = CACHES) -> tuple[float, ...]:
    """For each cache, the share of a table's rows that is outside it, with random lookups."""
    return tuple(max(0.0, 1 - cache / table_bytes) for cache in caches)


def _measure(
    lookup_seconds: LookupSeconds, weights: WeightType, table_bytes: int
) -> Iterator[Measured]:
    random = np.random.default_rng(0)
    for dim in DIMS:
        row_bytes = RowFormat(weights, dim).row_bytes
        rows = np.zeros((table_bytes // row_bytes, row_bytes), np.uint8)
        rows[:] = 1  # The first write to a page maps it.
        seconds = np.zeros((2, LOOKUP_REPEATS, len(SIZES)))
        for run, repeat, (at, (length, bags)) in product(
            range(2), range(LOOKUP_REPEATS), enumerate(SIZES)
        ):
            ids = random.integers(len(rows), size=(1, bags * length))
            offsets = np.arange(0, bags * length + 1, length)
            (seconds[run, repeat, at],) = lookup_seconds(
                rows, ids, offsets, weights=weights, dim=dim
            )
        first, second = np.median(seconds, 1)
        for at, (length, bags) in enumerate(SIZES):
            yield Measured(
                ids=bags * length,
                bags=bags,
                row_bytes=row_bytes,
                forward=(first[at], second[at]),
                missed=missed_of(table_bytes),
            )


OPTIMIZERS = ("rowwise_adagrad", "adagrad", "sgd")
BAG_LENGTHS = (1, 8, 32)
TABLES = 8
"""Number of tables of a batch, whose vectors are side by side in one matrix."""

OTHER_BYTES = 1 << 25
"""Bytes read between two batches on CPU, since a step also moves vectors of tens of MB."""

REPEATS = 5

Lookup: TypeAlias = Callable[[torch.Tensor, torch.Tensor, None], torch.Tensor]


class Bench(NamedTuple):
    """Sizes to measure on one kind of device."""

    device: torch.device
    caches: tuple[int, ...]
    table_bytes: tuple[int, ...]
    """Bytes of all tables of a batch, from tables in the first cache to tables in none."""

    ids: int
    other_bytes: int


CPU = Bench(torch.device("cpu"), CACHES, TABLE_BYTES, 1 << 15, OTHER_BYTES)


def bench_of(device: torch.device) -> Bench:
    """Sizes for a CPU or a CUDA device. A CUDA device takes milliseconds to read the other bytes,
    in which the host submits the measured kernels."""
    if device.type == "cpu":
        return CPU
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    sizes = (1 << 22, 1 << 26, 1 << 29, 1 << 32)
    return Bench(device, (cache,), sizes, 1 << 20, 1 << 33)


def measure_kernel(optimizer: str, bench: Bench = CPU) -> Iterator[Measured]:
    device = bench.device
    generator = torch.Generator(device).manual_seed(0)
    others = torch.ones(bench.other_bytes // 4, device=device)
    for dim, table_bytes in product(DIMS, bench.table_bytes):
        rows = table_bytes // (4 * dim * TABLES)
        tables = build_fused_tables(
            [(rows, dim)] * TABLES,
            range(TABLES),
            optimizer=FusedOptimizer(name=optimizer),
            device=device,
        )
        states = [state for of_table in tables.states for state in of_table.values()]
        for tensor in [*tables.weights, *states]:
            tensor.fill_(1.0)  # The first write to a page is slower than later ones.
        shapes = [
            (bench.ids // share // length, length) for length, share in product(BAG_LENGTHS, (1, 4))
        ]
        seconds = np.zeros((2 * REPEATS, len(shapes), 2))
        distinct = np.zeros(len(shapes), int)
        for run, (at, (bags, length)) in product(range(len(seconds)), enumerate(shapes)):
            ids = torch.randint(rows, (bags * length,), generator=generator, device=device)
            distinct[at] = sum(len(of_table.unique()) for of_table in ids.view(TABLES, -1))
            others.sum()
            offsets = torch.arange(0, len(ids) + 1, length, device=device)
            seconds[run, at] = _seconds(tables.lookup, ids, offsets, others)
        first, second = (np.median(half, 0) for half in np.split(seconds, 2))
        for at, (bags, length) in enumerate(shapes):
            yield Measured(
                ids=bags * length,
                bags=bags,
                row_bytes=4 * dim,
                forward=(first[at, 0], second[at, 0]),
                backward=(first[at, 1], second[at, 1]),
                rows=int(distinct[at]),
                missed=missed_of(table_bytes, bench.caches),
            )


def _seconds(
    lookup: Lookup, ids: torch.Tensor, offsets: torch.Tensor, others: torch.Tensor
) -> tuple[float, float]:
    """Seconds of the lookup and of the update: of threads on CPU, of the device on CUDA."""
    if ids.device.type == "cuda":
        return _device_seconds(lookup, ids, offsets, others)
    start = time.thread_time()
    pooled = lookup(ids, offsets, None)
    middle = time.thread_time()
    gradient = torch.full_like(pooled, 1e-6)
    begin = time.process_time()
    pooled.backward(gradient)  # type: ignore[no-untyped-call]
    return middle - start, time.process_time() - begin


def _device_seconds(
    lookup: Lookup, ids: torch.Tensor, offsets: torch.Tensor, others: torch.Tensor
) -> tuple[float, float]:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]  # type: ignore[no-untyped-call]
    others.sum()
    events[0].record()
    pooled = lookup(ids, offsets, None)
    events[1].record()
    gradient = torch.full_like(pooled, 1e-6)
    others.sum()
    events[2].record()
    pooled.backward(gradient)  # type: ignore[no-untyped-call]
    events[3].record()
    torch.cuda.synchronize(ids.device)
    first, second = (events[at].elapsed_time(events[at + 1]) / 1e3 for at in (0, 2))
    return first, second


MODULE: Final = "embershard.planner.measurements"
READY = "ready"
START_SECONDS = 60


@contextmanager
def busy_cores() -> Iterator[None]:
    """Run a process on each of the other cores that looks up and updates rows, until the block
    ends. Raises RuntimeError if one does not start within a minute."""
    others = len(os.sched_getaffinity(0)) - 1
    with ExitStack() as ended:
        processes = list[subprocess.Popen[str]]()
        for _ in range(others):
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", MODULE, str(os.getpid())],
                stdout=subprocess.PIPE,
                text=True,
            )
            ended.callback(process.communicate)
            ended.callback(process.kill)
            processes.append(process)
        late = Timer(START_SECONDS, _kill, [processes])
        late.start()
        ended.callback(late.cancel)
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != READY:
                raise RuntimeError("calibrate: a process beside the measured one did not start")
        late.cancel()
        yield


def _kill(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()


def _main(parent: int) -> None:
    set_malloc_options(os.environ)
    torch.set_num_threads(1)
    print(READY, flush=True)
    while True:
        for optimizer in OPTIMIZERS:
            for _ in measure_kernel(optimizer):
                if os.getppid() != parent:
                    return


if __name__ == "__main__":
    _main(int(sys.argv[1]))
