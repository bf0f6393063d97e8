"""``python -m benchmarks.lookup_estimates``: what the planner says lookups and updates of a table
take, beside what they take.

Tables of random rows, dims, batches and skews, of dims that ``embershard calibrate`` does not
measure, each looked up alone with the other cores at work and with other data read between two
batches, as it measures. Operations of 50 us and more count.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.planner_tables import parser_of
from embershard.formatting import row_text, table_lines
from embershard.kernels import FusedOptimizer, build_fused_tables
from embershard.malloc_options import set_malloc_options
from embershard.planner.busy_cores import busy_cores
from embershard.planner.cache import missed_shares
from embershard.planner.cost import Table, kernel_seconds
from embershard.planner.machine import Machine
from embershard.planner.measured_kernels import OTHER_BYTES
from embershard.sharding.shard_memory import FLOAT_BYTES

OPTIMIZER = "rowwise_adagrad"
DIMS = (24, 32, 48, 80, 96, 160, 192)
BAG_LENGTHS = (2, 5, 12, 20, 50)
ROWS, IDS = (1e3, 4e6), (1 << 11, 1 << 16)
"""Between which both are drawn, alike on a logarithmic scale."""

BYTES = 1 << 30
"""Of the largest table."""

BATCHES = 6
LEAST_SECONDS = 50e-6
PASSES = ("lookup", "update")


class Drawn(NamedTuple):
    """A table, and the batches that look it up."""

    table: Table
    shares: NDArray[np.float64]
    bags: int
    length: int


def drawn(seed: int, count: int, machine: Machine) -> Iterator[Drawn]:
    """Tables and batches, the same for the same seed."""
    generator = np.random.default_rng(seed)
    for at in range(count):
        dim, length = int(generator.choice(DIMS)), int(generator.choice(BAG_LENGTHS))
        rows, ids = (int(np.exp(generator.uniform(*np.log(each)))) for each in (ROWS, IDS))
        rows, bags = min(rows, BYTES // (4 * dim)), max(ids // length, 1)
        skew = generator.choice((0.0, 0.6, 1.05))
        shares = np.arange(1, rows + 1) ** -skew
        generator.shuffle(shares)
        table = Table(
            name=f"table_{at}",
            rows=rows,
            dim=dim,
            ids=bags * length,
            bags=bags,
            kernel=machine.kernel(OPTIMIZER),
            accesses_below=np.concatenate([[0.0], np.cumsum(shares)]),
        )
        yield Drawn(table, shares / shares.sum(), bags, length)


def measured(each: Drawn, seed: int) -> tuple[float, float]:
    """Seconds of a lookup and of an update, the medians of batches."""
    table, generator = each.table, np.random.default_rng(seed)
    tables = build_fused_tables(
        [(table.rows, table.dim)],
        [0],
        optimizer=FusedOptimizer(name=OPTIMIZER),
        device=torch.device("cpu"),
    )
    for tensor in (*tables.weights, *(state for one in tables.states for state in one.values())):
        tensor.fill_(1.0)
    offsets = torch.arange(0, each.bags * each.length + 1, each.length)
    below = np.cumsum(each.shares)
    others, found = torch.ones(OTHER_BYTES // FLOAT_BYTES), list[tuple[float, float]]()
    draws = np.searchsorted(below, generator.random((BATCHES, each.bags * each.length)) * below[-1])
    for ids in torch.from_numpy(np.minimum(draws, table.rows - 1)):
        others.sum()
        start = time.thread_time()
        pooled = tables.lookup(ids, offsets, None)
        middle = time.thread_time()
        gradient = torch.full_like(pooled, 1e-6)
        begin = time.process_time()
        pooled.backward(gradient)  # type: ignore[no-untyped-call]
        found.append((middle - start, time.process_time() - begin))
    lookups, updates = zip(*found[1:], strict=True)
    return median(lookups), median(updates)


def estimated(table: Table, machine: Machine) -> tuple[float, float]:
    """What the planner says of both."""
    shares = missed_shares([table.row_rates], [FLOAT_BYTES * table.dim], machine.caches)
    known = replace(table, missed=tuple(shares[:, 0].tolist()))
    passes = kernel_seconds(known, [((0, table.rows), (0, table.dim))])[:, 0]
    return passes[0] + table.kernel.forward.start, passes[1] + table.kernel.backward.start


def main() -> None:
    """Prints a row for lookups and one for updates."""
    parser = parser_of("lookup_estimates", __doc__)
    parser.add_argument("--tables", type=int, default=60, help="(default: 60)")
    parser.add_argument("--each", action="store_true", help="also a row for each table")
    arguments = parser.parse_args()
    machine: Machine = arguments.machine
    set_malloc_options(os.environ)  # As `embershard calibrate` does.
    torch.set_num_threads(1)
    figures = list[tuple[tuple[float, float], ...]]()
    with busy_cores():
        for seed, each in enumerate(drawn(0, arguments.tables, machine)):
            found = measured(each, 2 * seed), measured(each, 2 * seed + 1)
            figures.append((*found, estimated(each.table, machine)))
            if arguments.each:
                table = each.table
                figure = " ".join(f"{1e6 * one:.0f}" for pair in figures[-1] for one in pair)
                print(table.rows, table.dim, table.ids, each.length, figure)
    head = ("operations of 50 us and more", "count", "error", "bias", "repeat error")
    print(*table_lines(head), sep="\n")
    for at, name in enumerate(PASSES):
        first, second, says = (np.array([each[side][at] for each in figures]) for side in range(3))
        long = np.minimum(first, second) >= LEAST_SECONDS
        ratios = says[long] / ((first + second) / 2)[long]
        repeats = np.abs(first / second - 1)[long]
        cells = (np.abs(ratios - 1).mean(), np.exp(np.log(ratios).mean()), repeats.mean())
        print(row_text((name, int(long.sum()), *(f"{each:.2f}" for each in cells))))


if __name__ == "__main__":
    main()
