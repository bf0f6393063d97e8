"""Steps of sharded training equal those of one process with whole tables."""

from itertools import product

import pytest
import torch

from embershard.sharding import (
    column_wise,
    construct_module_sharding_plan,
    data_parallel,
    grid_shard,
    row_wise,
    table_column_wise,
    table_row_wise,
    table_wise,
)
from tests.sharding.cases import collection_of, train
from tests.sharding.reference import make_case, run_reference

SIZES = {1: [6], 2: [5, 3], 4: [5, 3, 0, 4]}
"""Number of examples of each rank, by world size."""


def generators(kind, world_size, **kernel):
    """A generator for each table."""
    hosts = max(world_size // 2, 1)
    last = world_size - 1
    by_kind = {
        "data_parallel": [data_parallel()] * 3,
        "table_wise": [table_wise(rank, **kernel) for rank in (last, 0, 0)],
        "row_wise": [row_wise(**kernel)] * 3,
        "column_wise": [column_wise(at, **kernel) for at in ([last, 0], [0, last], [last, 0])],
        "table_row_wise": [table_row_wise(host, **kernel) for host in (hosts - 1, 0, 0)],
        "table_column_wise": [table_column_wise(hosts - 1, **kernel)] * 3,
        "grid_shard": [grid_shard(range(hosts), **kernel)] * 3,
        "mixed": [data_parallel(), grid_shard(range(hosts), **kernel), row_wise()],
    }
    return dict(zip(["users", "items", "words"], by_kind[kind], strict=True))


def plan_of(case, kind, world_size, **kernel):
    return construct_module_sharding_plan(
        collection_of(case, "meta"),
        generators(kind, world_size, **kernel),
        world_size=world_size,
        local_size=min(world_size, 2),
    )


def check_equal(case, plan, results):
    by_range = case.optimizer == "rowwise_adagrad"
    ranges = {
        name: sorted({shard.columns for shard in plan[name].sharding_spec})
        if by_range
        else [(0, dim)]
        for name, _, dim, *_ in case.tables
    }
    outputs, weights, state = run_reference(case, ranges)
    for rank, (rank_outputs, shards, replicas) in enumerate(results):
        for step, expected in enumerate(outputs):
            check_close(rank_outputs[step], expected[rank])
        for name, (weight, squares) in replicas.items():
            check_close(weight, weights[name])
            check_state(squares, state[name, *ranges[name][0]])
        for shard, weight, squares in shards:
            rows, columns = slice(*shard.rows), slice(*shard.columns)
            check_close(weight, weights[shard.table][rows, columns])
            if by_range:
                check_state(squares, state[shard.table, *shard.columns], (rows, 0))
            else:
                check_state(squares, state[shard.table, *ranges[shard.table][0]], (rows, columns))


def check_state(value, expected, place=...):
    """``expected`` None: the optimizer has no state."""
    assert (value is None) == (expected is None)
    if expected is not None:
        check_close(value, expected[place])


def check_close(value, expected):
    torch.testing.assert_close(value.double(), expected, rtol=1e-5, atol=1e-5)


POOLINGS = [
    pytest.param("SUM", False, id="sum"),
    pytest.param("MEAN", False, id="mean"),
    pytest.param("SUM", True, id="weighted-sum"),
    pytest.param("MEAN", True, id="weighted-mean"),
]
KINDS = [
    "data_parallel",
    "table_wise",
    "row_wise",
    "column_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
    "mixed",
]


FUSED, DENSE = ["sgd", "rowwise_adagrad", "adagrad"], ["sgd", "adagrad"]
SETTINGS = {
    "sum": {"pooling": "SUM"},
    "mean": {"pooling": "MEAN"},
    "weighted-sum": {"pooling": "SUM", "is_weighted": True},
    "weighted-mean": {"pooling": "MEAN", "is_weighted": True},
    "sequences": {"is_sequence": True},
}


def covering():
    """Every kind with every kernel and optimizer on 1, 2 and 4 ranks. On each number of ranks,
    every setting meets every kind and every optimizer."""
    optimizers = [("fused", name) for name in FUSED] + [("dense", name) for name in DENSE]
    for shift, world_size in ((1, 1), (0, 2), (3, 4)):
        for (row, kind), (column, (kernel, optimizer)) in product(
            enumerate(KINDS), enumerate(optimizers)
        ):
            setting = list(SETTINGS)[(row + column + shift) % len(SETTINGS)]
            # Replicas use the dense kernel in any case.
            if (kind, kernel) != ("data_parallel", "dense"):
                yield setting, kind, kernel, optimizer, world_size


@pytest.mark.parametrize(("setting", "kind", "kernel", "optimizer", "world_size"), list(covering()))
def test_training_equals_that_of_whole_tables(
    workers, setting, kind, kernel, optimizer, world_size
):
    case = make_case(world_size, optimizer=optimizer, sizes=SIZES[world_size], **SETTINGS[setting])
    plan = plan_of(case, kind, world_size, compute_kernel=kernel)
    check_equal(case, plan, workers.run(world_size, train, case, plan))
