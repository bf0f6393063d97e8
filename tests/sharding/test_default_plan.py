"""``DistributedModelParallel`` without a plan."""

import io
from contextlib import redirect_stdout

from torch import nn

from embershard.errors import InputError
from embershard.planner import EmbeddingShardingPlanner, Topology
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingPlan,
)
from tests.sharding.cases import collection_of, features_of
from tests.sharding.reference import make_case

CASE = make_case(2, sizes=[5, 3], steps=1)


def sharders(fused_params):
    return [EmbeddingBagCollectionSharder(fused_params=fused_params)]


def build(env, case, fused_params):
    """Builds a model and trains a step. Returns the plan or the error message, and the printed
    text."""
    model = nn.ModuleDict({"sparse": collection_of(case)}) if case else nn.Linear(2, 1)
    with redirect_stdout(io.StringIO()) as printed:
        try:
            parallel = DistributedModelParallel(model, env, sharders=sharders(fused_params))
        except InputError as error:
            return str(error), printed.getvalue()
    if case:
        pooled = parallel.module["sparse"](features_of(case, case.batches[0][env.rank]))
        pooled.values().sum().backward()
    return parallel.plan.to_json(), printed.getvalue()


def test_without_a_plan_the_planner_makes_one_that_rank_0_prints(workers):
    settings = {"optimizer": "sgd"}
    (plan, printed), (other_plan, other_printed) = workers.run(2, build, CASE, settings)
    planner = EmbeddingShardingPlanner(Topology(2))
    model = nn.ModuleDict({"sparse": collection_of(CASE)})
    assert plan == other_plan == planner.plan(model, sharders(settings)).to_json()
    *_, last_table = planner.report.to_text().strip().splitlines()
    assert last_table.startswith("| sparse.")
    assert printed.strip().endswith(last_table)
    assert other_printed == ""


def test_what_the_planner_refuses_is_one_message_on_all(workers):
    (message, printed), other = workers.run(2, build, CASE, None)
    assert message.startswith("rank 0: module 'sparse': table 'users': expected an optimizer")
    assert (message, printed) == other
    assert printed == ""


def test_a_model_without_collections_needs_no_plan(workers):
    assert workers.run(2, build, None, None) == [(ShardingPlan({}).to_json(), "")] * 2
