"""The optimizers of all shards as one: names, learning rates, averages, access counts."""

import pytest
import torch
from torch import nn

from embershard.errors import InputError
from embershard.optim import (
    CombinedOptimizer,
    KeyedOptimizerWrapper,
    WarmupOptimizer,
    WarmupPolicy,
    WarmupStage,
)
from embershard.sharding import (
    EmbeddingBagCollectionSharder,
    column_wise,
    data_parallel,
    load_state,
    row_wise,
    save_state,
    table_wise,
)
from tests.sharding.cases import collection_of, features_of, plan_of, sharded
from tests.sharding.reference import LEARNING_RATE, loss_of, make_case, run_reference
from tests.sharding.test_embeddingbag import SIZES, check_close

EMA = {"ema_interval": 2, "ema_start": 3, "ema_coefficient": 0.25}


def train(env, case, parallel, before_step=None):
    """Outputs of each step, and each shard's final weights and state."""
    outputs = []
    for step, ranks in enumerate(case.batches):
        if before_step:
            before_step(step)
        module = parallel.module["sparse"]
        output = module(features_of(case, ranks[env.rank])).values()
        loss_of(output, step).backward()
        outputs.append(output.detach())
    shards = parallel.module["sparse"].local_shards()
    return outputs, [(shard.shard, shard.weight, dict(shard.state)) for shard in shards]


def train_ema(env, case, plan):
    settings = {"optimizer": "ema_rowwise_adagrad", "learning_rate": LEARNING_RATE, "eps": 1e-6}
    return train(env, case, sharded(env, case, plan, settings | EMA))


@pytest.mark.parametrize(
    ("world_size", "pooling", "is_weighted"),
    [(1, "SUM", False), (2, "MEAN", False), (2, "SUM", True), (4, "MEAN", True)],
)
def test_ema_row_wise_adagrad_equals_unsharded_training(workers, pooling, is_weighted, world_size):
    case = make_case(
        world_size,
        pooling=pooling,
        is_weighted=is_weighted,
        optimizer="ema_rowwise_adagrad",
        sizes=SIZES[world_size],
    )
    ranges = {name: [(0, dim)] for name, _, dim, *_ in case.tables}
    outputs, weights, state = run_reference(case, ranges, ema=EMA)
    plan = plan_of(case, row_wise(), world_size, users=table_wise(rank=world_size - 1))
    for rank, (rank_outputs, shards) in enumerate(workers.run(world_size, train_ema, case, plan)):
        for step, expected in enumerate(outputs):
            check_close(rank_outputs[step], expected[rank])
        for shard, weight, states in shards:
            rows = slice(*shard.rows)
            check_close(weight, weights[shard.table][rows])
            check_close(states["momentum1"], state[shard.table, *shard.columns][rows, 0])
            assert states["steps"].tolist() == [len(case.batches)]


def train_clipped(env, case, plan, bound):
    settings = {
        "optimizer": case.optimizer,
        "learning_rate": LEARNING_RATE,
        "gradient_clipping": True,
        "max_gradient": bound,
        "eps": 1e-6,
    }
    return train(env, case, sharded(env, case, plan, settings))


@pytest.mark.parametrize(
    ("pooling", "is_weighted", "optimizer"),
    [
        ("SUM", False, "sgd"),
        ("SUM", True, "adagrad"),
        ("MEAN", False, "adagrad"),
        ("MEAN", True, "sgd"),
    ],
)
def test_pooled_gradients_are_clipped_alike_under_every_plan(
    workers, pooling, is_weighted, optimizer
):
    case = make_case(
        2, pooling=pooling, is_weighted=is_weighted, optimizer=optimizer, sizes=SIZES[2]
    )
    ranges = {name: [(0, dim)] for name, _, dim, *_ in case.tables}
    bound = 0.2
    outputs, weights, _ = run_reference(case, ranges, clip=bound)
    plan = plan_of(case, row_wise(), 2, users=column_wise())
    for rank, (rank_outputs, shards) in enumerate(workers.run(2, train_clipped, case, plan, bound)):
        for step, expected in enumerate(outputs):
            check_close(rank_outputs[step], expected[rank])
        for shard, weight, _ in shards:
            check_close(weight, weights[shard.table][slice(*shard.rows), slice(*shard.columns)])


def test_an_average_in_column_shards_is_refused():
    case = make_case(2, sizes=[3, 3], steps=1)
    sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": "ema_rowwise_adagrad"})
    plan = plan_of(case, row_wise(), 2, items=column_wise())
    with pytest.raises(InputError, match=r"'items': expected whole rows with ema_rowwise_adagrad"):
        sharder.optimizers(collection_of(case), plan, where="here", device="cpu")


def build_with_average(env, case, plan):
    with pytest.raises(InputError) as raised:
        sharded(env, case, plan, {"optimizer": "ema_rowwise_adagrad"})
    return str(raised.value)


def test_an_average_of_an_odd_dim_is_refused_on_every_rank(workers):
    case = make_case(2, sizes=[3, 3], steps=0)
    case.tables[0] = ("users", 50, 7, ["u", "v"], "SUM")
    case.weights["users"] = torch.zeros(50, 7)
    message = (
        "rank 0: plan: module 'sparse': table 'users': ema_rowwise_adagrad: expected even dims, "
        "got [7]"
    )
    plan = plan_of(case, table_wise(rank=1))
    assert workers.run(2, build_with_average, case, plan) == [message, message]


def train_with_rates(env, case, plan, rates):
    """Trains with a warm-up that sets each step's rate. Returns the shards and the names of
    state."""
    settings = {"optimizer": case.optimizer, "learning_rate": 9.0, "eps": 1e-6}
    parallel = sharded(env, case, plan, settings)
    dense = KeyedOptimizerWrapper(
        {"bias": nn.Parameter(torch.zeros(1))}, lambda params: torch.optim.SGD(params, lr=1.0)
    )
    combined = CombinedOptimizer([("dense", dense), ("tables", parallel.fused_optimizer)])
    stages = [
        WarmupStage(WarmupPolicy.CONSTANT, max_iters=step + 1, value=rate)
        for step, rate in enumerate(rates)
    ]
    optimizer = WarmupOptimizer(combined, stages, lr=1.0)

    def before_step(step):
        if step:
            optimizer.step()

    _, shards = train(env, case, parallel, before_step)
    return shards, {
        name: sorted(states) for name, states in optimizer.state_dict()["state"].items()
    }


def test_warm_up_sets_the_rate_of_the_next_fused_lookup(workers):
    case = make_case(2, sizes=[5, 3], steps=4, optimizer="rowwise_adagrad")
    # A stage also sets the rate of the step at which it ends.
    rates = [0.3, 0.3, 0.1, 0.0]
    ranges = {name: [(0, dim)] for name, _, dim, *_ in case.tables}
    _, weights, _ = run_reference(case, ranges, rates=rates)
    plan = plan_of(case, row_wise(), 2, users=table_wise(rank=0))
    results = workers.run(2, train_with_rates, case, plan, [0.3, 0.1, 0.0])
    for shards, _ in results:
        for shard, weight, _ in shards:
            check_close(weight, weights[shard.table][slice(*shard.rows)])
    assert results[0][1] == {
        "__warmup": ["warmup"],
        **{
            f"tables.sparse.embedding_bags.{name}.weight": [f"{name}.momentum1"]
            for name in ("users", "items", "words")
        },
    }
    assert results[1][1] == results[0][1]  # A rank without a shard has the same names.


def count_of_batches(env, case, plan):
    parallel = sharded(env, case, plan, {"optimizer": "sgd"}, count_accesses=True)
    train(env, case, parallel)
    with torch.no_grad():  # Evaluation is not counted.
        parallel.module["sparse"](features_of(case, case.batches[0][env.rank]))
    return parallel.access_counts()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_access_counts_are_those_of_all_ids_in_training(workers, world_size):
    case = make_case(world_size, sizes=SIZES[world_size])
    plan = plan_of(
        case, row_wise(), world_size, users=column_wise([0, world_size - 1]), items=data_parallel()
    )
    expected = {}
    for name, rows, _, features, _ in case.tables:
        counts = torch.zeros(rows, dtype=torch.int64)
        for batch in (batch for ranks in case.batches for batch in ranks):
            for feature in features:
                for row in batch[feature][0].tolist():
                    if row >= 0:
                        counts[row] += 1
        expected[f"sparse.{name}"] = counts
    for result in workers.run(world_size, count_of_batches, case, plan):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)


def counts_without_count_accesses(env, case, plan):
    try:
        sharded(env, case, plan, {"optimizer": "sgd"}).access_counts()
    except InputError as error:
        return str(error)
    return ""


def test_access_counts_that_were_not_asked_for_are_refused(workers):
    case = make_case(1, sizes=[1], steps=1)
    (message,) = workers.run(1, counts_without_count_accesses, case, plan_of(case, row_wise(), 1))
    assert message == "access_counts: expected a model built with count_accesses, got none"


def save_counts(env, case, plan, folder):
    settings = {"optimizer": "ema_rowwise_adagrad"}
    parallel = sharded(env, case, plan, settings, count_accesses=True)
    train(env, case, parallel)
    save_state(parallel, folder, group=env.process_group)
    return parallel.access_counts()


def load_counts(env, case, plan, folder):
    """Access counts, numbers of steps, and messages of loading."""
    settings = {"optimizer": "ema_rowwise_adagrad"}
    parallel = sharded(env, case, plan, settings, count_accesses=True)
    messages = load_state(parallel, folder, group=env.process_group)
    shards = parallel.module["sparse"].local_shards()
    return parallel.access_counts(), {shard.state["steps"].item() for shard in shards}, messages


def test_access_counts_and_steps_load_under_another_plan(workers, tmp_path):
    case = make_case(4, sizes=SIZES[4], optimizer="ema_rowwise_adagrad")
    plan = plan_of(case, row_wise(), 4, items=data_parallel())
    saved = workers.run(4, save_counts, case, plan, tmp_path / "state")
    assert saved[0]["sparse.items"].sum() > 0
    other_plan = plan_of(case, row_wise(), 2, users=table_wise(rank=1), items=data_parallel())
    loaded = workers.run(2, load_counts, case, other_plan, tmp_path / "state")
    for counts, steps, messages in loaded:
        torch.testing.assert_close(counts, saved[0], rtol=0, atol=0)
        assert steps == {len(case.batches)}
        assert messages == []
