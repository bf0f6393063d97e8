"""``measure_kernel``: what lookups and updates of fused tables cost on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from embershard.kernels import FusedOptimizer, build_fused_tables
from embershard.planner.fit import Measured
from embershard.planner.measured_lookups import CACHES, DIMS, TABLE_BYTES, missed_of

OPTIMIZERS = ("rowwise_adagrad", "adagrad", "sgd")
BAG_LENGTHS = (1, 8, 32)
TABLES = 8
"""Of a batch, which many tables share: their vectors are one wide matrix."""

OTHER_BYTES = 1 << 25
"""Read between two batches on CPU: a step also moves vectors of tens of MB."""

REPEATS = 5

Lookup: TypeAlias = Callable[[torch.Tensor, torch.Tensor, None], torch.Tensor]


class Bench(NamedTuple):
    """What is measured on one kind of device."""

    device: torch.device
    caches: tuple[int, ...]
    """Bytes of the caches whose misses are told apart."""

    table_bytes: tuple[int, ...]
    """Of all tables of a batch, from those in the first cache to those in none."""

    ids: int
    """Of a batch."""

    other_bytes: int
    """Read between two batches."""


CPU = Bench(torch.device("cpu"), CACHES, TABLE_BYTES, 1 << 15, OTHER_BYTES)


def bench_of(device: torch.device) -> Bench:
    """Of CPU, or of a CUDA device. There other bytes take milliseconds, in which the host submits
    what is measured."""
    if device.type == "cpu":
        return CPU
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    sizes = (1 << 22, 1 << 26, 1 << 29, 1 << 32)
    return Bench(device, (cache,), sizes, 1 << 20, 1 << 33)


def measure_kernel(optimizer: str, bench: Bench = CPU) -> Iterator[Measured]:
    """Lookups and updates of sets of tables, one after the other, with batches of each shape in
    turn."""
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
        states = [state for each in tables.states for state in each.values()]
        for tensor in [*tables.weights, *states]:
            tensor.fill_(1.0)  # The first write to a page costs more than any later one.
        shapes = [
            (bench.ids // share // length, length) for length, share in product(BAG_LENGTHS, (1, 4))
        ]
        seconds = np.zeros((2 * REPEATS, len(shapes), 2))
        distinct = np.zeros(len(shapes), int)
        for run, (at, (bags, length)) in product(range(len(seconds)), enumerate(shapes)):
            ids = torch.randint(rows, (bags * length,), generator=generator, device=device)
            distinct[at] = sum(len(each.unique()) for each in ids.view(TABLES, -1))
            others.sum()
            offsets = torch.arange(0, len(ids) + 1, length, device=device)
            seconds[run, at] = _seconds(tables.lookup, ids, offsets, others)
        first, second = (np.median(each, 0) for each in np.split(seconds, 2))
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
    """Of the lookup and of the update: of CPU, of threads; of CUDA, of the device."""
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
