"""What a plan counts of a rank's memory, by hand."""

from functools import partial

import pytest
from torch import nn

from embershard.modules import (
    DataType,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FeatureProcessedEmbeddingBagCollection,
    PositionWeightedModuleCollection,
)
from embershard.planner import EmbeddingShardingPlanner, PlannerError, Topology
from embershard.sharding import FeatureProcessedEmbeddingBagCollectionSharder
from tests.cases import cases
from tests.planner.training_cases import machine_of, sharders

ROWS, DIM, BATCH = 1000, 8, 16
STEP = BATCH * (8 + 8) + 2 * 4 * DIM * BATCH
"""Ids, bags, vectors and gradients."""


def plan_of(data_type, optimizer, cap, collection=EmbeddingBagCollection, **settings):
    table = EmbeddingBagConfig(
        name="t",
        num_embeddings=ROWS,
        embedding_dim=DIM,
        feature_names=["f"],
        data_type=data_type,
    )
    model = nn.ModuleDict({"sparse": collection([table], device="meta")})
    topology = Topology(1, machine=machine_of(), ddr_cap=cap)
    planner = EmbeddingShardingPlanner(topology, BATCH, storage_reservation=0, **settings)
    bags = sharders(optimizer)
    with_processors = FeatureProcessedEmbeddingBagCollectionSharder(*bags)
    return planner.plan(model, [with_processors, *bags])


@pytest.mark.parametrize(
    ("data_type", "optimizer", "counted", "row_bytes"),
    [
        ("FP32", "sgd", False, 4 * DIM),
        ("FP16", "sgd", False, 2 * DIM),
        ("FP16", "adagrad", False, 2 * DIM + 4 * DIM),
        ("FP16", "rowwise_adagrad", False, 2 * DIM + 4),
        ("FP16", "ema_rowwise_adagrad", True, 2 * DIM + 4 + 8),
    ],
)
def test_a_rank_of_just_the_memory_of_its_table_takes_it(data_type, optimizer, counted, row_bytes):
    needed, settings = ROWS * row_bytes + STEP, {"count_accesses": counted}
    assert plan_of(DataType(data_type), optimizer, needed, **settings).plan["sparse"]
    with pytest.raises(PlannerError, match="plan: 1 byte short"):
        plan_of(DataType(data_type), optimizer, needed - 1, **settings)


def test_a_pipeline_takes_the_memory_of_the_ids_of_two_more_batches():
    needed = ROWS * 4 * DIM + STEP + 2 * BATCH * (8 + 8)
    assert plan_of(DataType.FP32, "sgd", needed, pipelined=True).plan["sparse"]
    with pytest.raises(PlannerError, match="plan: 1 byte short"):
        plan_of(DataType.FP32, "sgd", needed - 1, pipelined=True)


def processed(tables, device):
    bags = EmbeddingBagCollection(tables, is_weighted=True, device=device)
    return FeatureProcessedEmbeddingBagCollection(bags, PositionWeightedModuleCollection({"f": 4}))


@cases(
    "collection",
    {"weights": partial(EmbeddingBagCollection, is_weighted=True), "positions": processed},
)
def test_weights_and_positions_take_4_bytes_an_id_of_each_batch_in_memory(collection):
    needed = ROWS * 4 * DIM + STEP + 2 * BATCH * (8 + 8) + 3 * BATCH * 4
    settings = {"pipelined": True, "collection": collection}
    assert plan_of(DataType.FP32, "sgd", needed, **settings).plan["sparse"]
    with pytest.raises(PlannerError, match="plan: 1 byte short"):
        plan_of(DataType.FP32, "sgd", needed - 1, **settings)
