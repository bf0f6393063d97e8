"""Any tiling trains as whole tables do, whatever its sharding type is called."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from embershard.package.rectangles import Shard
from embershard.sharding import EmbeddingModuleShardingPlan, ParameterSharding
from tests.sharding.cases import train
from tests.sharding.reference import make_case
from tests.sharding.test_embeddingbag import check_equal

WORLD = 4


@st.composite
def tilings(draw, name, rows, dim):
    """Rectangles by up to five cuts, each through one of them; a rank may hold several."""
    found = [((0, rows), (0, dim))]
    for _ in range(draw(st.integers(0, 5))):
        (top, end), (left, right) = found.pop(draw(st.integers(0, len(found) - 1)))
        if draw(st.booleans()) and end - top > 1:
            cut = draw(st.integers(top + 1, end - 1))
            found += [((top, cut), (left, right)), ((cut, end), (left, right))]
        elif right - left > 4:
            cut = 4 * draw(st.integers(left // 4 + 1, (right - 1) // 4))
            found += [((top, end), (left, cut)), ((top, end), (cut, right))]
        else:
            found.append(((top, end), (left, right)))
    return ParameterSharding(
        sharding_type="grid_shard",
        compute_kernel="fused",
        sharding_spec=tuple(
            Shard(table=name, rows=r, columns=c, devices=(draw(st.integers(0, WORLD - 1)),))
            for r, c in found
        ),
    )


@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_random_tilings_train_as_whole_tables(workers, data):
    case = make_case(
        WORLD,
        pooling=data.draw(st.sampled_from(["SUM", "MEAN"])),
        optimizer=data.draw(st.sampled_from(["sgd", "adagrad"])),
        is_sequence=data.draw(st.booleans()),
        sizes=[data.draw(st.integers(0, 4)) for _ in range(WORLD)],
        seed=data.draw(st.integers(0, 1 << 20)),
        steps=3,
    )
    plan = EmbeddingModuleShardingPlan(
        {name: data.draw(tilings(name, rows, dim)) for name, rows, dim, *_ in case.tables}
    )
    check_equal(case, plan, workers.run(WORLD, train, case, plan))
