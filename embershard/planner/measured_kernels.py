"""``measure_kernel``: what lookups and updates of fused tables cost on this machine."""

import time
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import torch

from embershard.kernels import FusedOptimizer, build_fused_tables
from embershard.planner.fit import Measured
from embershard.planner.measured_lookups import DIMS, TABLE_BYTES, missed_of

OPTIMIZERS = ("rowwise_adagrad", "adagrad", "sgd")
BAG_LENGTHS = (1, 8, 32)
TABLES, IDS = 8, 1 << 15
"""Of a batch, which many tables share: their vectors are one wide matrix."""

OTHER_BYTES = 1 << 25
"""Read between two batches: a step also moves vectors of tens of MB."""

REPEATS = 5


def measure_kernel(optimizer: str) -> Iterator[Measured]:
    """Lookups and updates of sets of tables, one after the other, with batches of each shape in
    turn."""
    generator = torch.Generator().manual_seed(0)
    others = torch.ones(OTHER_BYTES // 4)
    for dim, table_bytes in product(DIMS, TABLE_BYTES):
        rows = table_bytes // (4 * dim * TABLES)
        tables = build_fused_tables(
            [(rows, dim)] * TABLES,
            range(TABLES),
            optimizer=FusedOptimizer(name=optimizer),
            device=torch.device("cpu"),
        )
        states = [state for each in tables.states for state in each.values()]
        for tensor in [*tables.weights, *states]:
            tensor.fill_(1.0)  # The first write to a page costs more than any later one.
        shapes = [
            (IDS // share // length, length) for length, share in product(BAG_LENGTHS, (1, 4))
        ]
        seconds = np.zeros((2 * REPEATS, len(shapes), 2))
        distinct = np.zeros(len(shapes), int)
        for run, (at, (bags, length)) in product(range(len(seconds)), enumerate(shapes)):
            ids = torch.randint(rows, (bags * length,), generator=generator)
            of_tables = ids.view(TABLES, -1).numpy()
            distinct[at] = sum(len(np.unique(each)) for each in of_tables)
            others.sum()
            offsets = torch.arange(0, len(ids) + 1, length)
            seconds[run, at] = _seconds(tables.lookup, ids, offsets)
        first, second = (np.median(each, 0) for each in np.split(seconds, 2))
        for at, (bags, length) in enumerate(shapes):
            yield Measured(
                ids=bags * length,
                bags=bags,
                row_bytes=4 * dim,
                forward=(first[at, 0], second[at, 0]),
                backward=(first[at, 1], second[at, 1]),
                rows=int(distinct[at]),
                missed=missed_of(table_bytes),
            )


def _seconds(
    lookup: Callable[..., torch.Tensor], values: torch.Tensor, offsets: torch.Tensor
) -> tuple[float, float]:
    start = time.thread_time()
    pooled = lookup(values, offsets, None)
    middle = time.thread_time()
    gradient = torch.full_like(pooled, 1e-6)
    begin = time.process_time()
    pooled.backward(gradient)  # type: ignore[no-untyped-call]
    return middle - start, time.process_time() - begin
