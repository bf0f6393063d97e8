"""Any tiling trains as whole tables do, whatever its sharding type is called."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embershard.package.rectangles import Shard
from embershard.sharding import EmbeddingModuleShardingPlan, ParameterSharding, data_parallel
from tests.sharding.cases import plan_of, train
from tests.sharding.reference import make_case, run_reference
from tests.sharding.test_embeddingbag import check_close, check_equal

WORLD = 4


@st.composite
def tilings(draw, name, rows, dim):
    """Cuts a table into rectangles, by up to five cuts of one rectangle each. A rank may hold
    several."""
    results = [((0, rows), (0, dim))]
    for _ in range(draw(st.integers(0, 5))):
        (top, end), (left, right) = results.pop(draw(st.integers(0, len(results) - 1)))
        if draw(st.booleans()) and end - top > 1:
            cut = draw(st.integers(top + 1, end - 1))
            results += [((top, cut), (left, right)), ((cut, end), (left, right))]
        elif right - left > 4:
            cut = 4 * draw(st.integers(left // 4 + 1, (right - 1) // 4))
            results += [((top, end), (left, cut)), ((top, end), (cut, right))]
        else:
            results.append(((top, end), (left, right)))
    return ParameterSharding(
        sharding_type="grid_shard",
        compute_kernel="fused",
        sharding_spec=tuple(
            Shard(table=name, rows=r, columns=c, devices=(draw(st.integers(0, WORLD - 1)),))
            for r, c in results
        ),
    )


def check_rectangles(case, plan, results):
    """Like ``check_equal``, for row-wise state: each rectangle keeps its own."""
    cuts = {
        name: [(shard.rows, shard.columns) for shard in plan[name].sharding_spec] for name in plan
    }
    outputs, weights, state = run_reference(case, {}, rectangles=cuts)
    for rank, (vectors, shards, replicas) in enumerate(results):
        for step, expected in enumerate(outputs):
            check_close(vectors[step], expected[rank])
        for shard, weight, momentum in shards:
            expected_weight = weights[shard.table][slice(*shard.rows), slice(*shard.columns)]
            check_close(weight, expected_weight)
            check_close(momentum, state[shard.table, *shard.rows, *shard.columns][:, 0])
        for name, (weight, squares) in replicas.items():
            check_close(weight, weights[name])
            ((rows, columns),) = cuts[name]
            check_close(squares, state[name, *rows, *columns])


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_random_tilings_train_as_whole_tables(workers, data):
    pooling, is_weighted, is_sequence = data.draw(
        st.sampled_from(
            [
                ("SUM", False, False),
                ("MEAN", False, False),
                ("SUM", True, False),
                ("MEAN", True, False),
                ("SUM", False, True),
            ]
        )
    )
    optimizer = data.draw(st.sampled_from(["sgd", "adagrad", "rowwise_adagrad"]))
    case = make_case(
        WORLD,
        pooling=pooling,
        is_weighted=is_weighted,
        optimizer=optimizer,
        is_sequence=is_sequence,
        sizes=[data.draw(st.integers(0, 4)) for _ in range(WORLD)],
        seed=data.draw(st.integers(0, 1 << 20)),
        steps=3,
    )
    replicas = plan_of(case, data_parallel(), WORLD)
    plan = EmbeddingModuleShardingPlan(
        {
            name: replicas[name]
            if data.draw(st.integers(0, 3)) == 0
            else data.draw(tilings(name, rows, dim))
            for name, rows, dim, *_ in case.tables
        }
    )
    check = check_rectangles if optimizer == "rowwise_adagrad" else check_equal
    check(case, plan, workers.run(WORLD, train, case, plan))
