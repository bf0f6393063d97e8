"""``python -m benchmarks.serving_planner``: plans of serving of the 856 tables, int8, 256 examples
a batch: the busiest device over the bound, its memory, and CPU seconds of planning, imports apart.
"""

import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.planner_tables import DrawnTable, parser_of, reuse_tables
from embershard.formatting import table_lines
from embershard.package.manifest import TableSpec
from embershard.package.row_format import RowFormat
from embershard.planner import Fleet, ServingProblem, serving_problem
from embershard.planner.bound import lower_bound
from embershard.planner.cache import RowRates
from embershard.planner.inference import solve
from embershard.planner.inference_cost import shard_bytes
from embershard.planner.lookup_load import LookupLoad

EXAMPLES, REQUESTS = 256, 64
WEIGHTS: Final = "int8"
HOT_SHARE = 0.02
"""Of a table's rows, which its cached lookups go to."""

MEMORY_SLACK = 1.5
"""Memory of all devices, relative to the tables, beside no cap."""


def specs(tables: Sequence[DrawnTable]) -> list[TableSpec]:
    """As in a package, without files."""
    return [
        TableSpec.model_construct(
            name=each.name,
            rows=each.rows,
            dim=each.dim,
            weights=WEIGHTS,
            row_bytes=RowFormat(WEIGHTS, each.dim).row_bytes,
        )
        for each in tables
    ]


def load(tables: Sequence[DrawnTable]) -> LookupLoad:
    """Requests of ``EXAMPLES`` examples."""
    random = np.random.default_rng(0)
    drawn = [random.poisson(each.pooling * EXAMPLES, REQUESTS) for each in tables]
    ids = np.array(drawn, float).T
    return LookupLoad(
        ids=ids,
        bags=np.full_like(ids, EXAMPLES),
        examples=np.full(REQUESTS, float(EXAMPLES)),
        classes=[classes_of(each) for each in tables],
        source="the reuse table",
    )


def classes_of(table: DrawnTable) -> RowRates:
    """Rows that its cached lookups go to, and the others."""
    rows = np.array([max(table.rows * HOT_SHARE, 1.0), table.rows * (1 - HOT_SHARE)])
    return RowRates(np.array([table.cached_share, 1 - table.cached_share]) / rows, rows)


def row(problem: ServingProblem, seconds: float) -> str:
    """Of a table; ``seconds`` were spent on ``problem`` itself."""
    start = time.process_time()
    layout = solve(problem)
    seconds += time.process_time() - start
    held = np.zeros(len(problem.fleet.devices))
    caps = np.full(len(held), problem.cap)
    bound = lower_bound(layout.options, speeds=np.ones(len(held)), caps=caps)
    tables = {each.spec.name: each.spec for each in problem.tables}
    for shard in layout.shards:
        held[list(shard.devices)] += shard_bytes(shard, tables[shard.table])
    cap = problem.fleet.memory_bytes
    fullest = f"{held.max() / 1e9:.2f} GB" + ("" if cap is None else f", {held.max() / cap:.0%}")
    several = sum(len(each.devices) > 1 for each in layout.shards)
    return (
        f"| {len(tables)} | {len(held)} | {'none' if cap is None else f'{cap / 1e9:.2f} GB'} | "
        f"{layout.batch_seconds * 1e6:.0f} | {layout.batch_seconds / bound:.3f} | "
        f"{several} | {fullest} | {seconds:.2f} |"
    )


def main() -> None:
    """Print the table."""
    parser = parser_of("serving_planner", __doc__)
    parser.add_argument("--devices", type=int, nargs="*", default=[2, 8, 16, 64])
    given = parser.parse_args()
    drawn = reuse_tables()
    tables, lookups = specs(drawn), load(drawn)
    total = sum(each.table_bytes for each in tables)
    head = ["tables", "devices", "cap", "us a batch", "/ bound", "replicated", "fullest", "CPU s"]
    print(*table_lines(head), sep="\n")
    for count in given.devices:
        for cap in (None, int(MEMORY_SLACK * total / count)):
            names = tuple(f"cpu:{at}" for at in range(count))
            start = time.process_time()
            fleet = Fleet(devices=names, memory_bytes=cap)
            problem = serving_problem(
                tables, fleet, lookups, given.machine, batch_examples=EXAMPLES
            )
            print(row(problem, time.process_time() - start), flush=True)


if __name__ == "__main__":
    main()
