"""The memory that a plan counts for a rank, by hand."""

from functools import partial

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
from tests.cases import cases, refused
from tests.planner.training_cases import machine_of, sharders

ROWS, DIM, BATCH = 1000, 8, 16
STEP = BATCH * (8 + 8) + 2 * 4 * DIM * BATCH
"""Bytes of ids, bags, vectors and gradients in a step."""


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


def check_needed_memory(needed, data_type, optimizer, **settings):
    """Checks that a rank with this memory takes the table, and that one byte less is refused."""
    assert plan_of(data_type, optimizer, needed, **settings).plan["sparse"]
    with refused(PlannerError, "plan: 1 byte short"):
        plan_of(data_type, optimizer, needed - 1, **settings)


@cases(
    ("data_type", "optimizer", "row_bytes"),
    {
        "sgd": ("FP32", "sgd", 4 * DIM),
        "fp16": ("FP16", "sgd", 2 * DIM),
        "adagrad": ("FP16", "adagrad", 2 * DIM + 4 * DIM),
        "row-wise": ("FP16", "rowwise_adagrad", 2 * DIM + 4),
        "counted": ("FP16", "ema_rowwise_adagrad", 2 * DIM + 4 + 8),
    },
)
def test_a_table_needs_the_memory_of_its_rows_and_state(data_type, optimizer, row_bytes):
    counted = optimizer == "ema_rowwise_adagrad"
    needed = ROWS * row_bytes + STEP
    check_needed_memory(needed, DataType(data_type), optimizer, count_accesses=counted)


def test_a_pipeline_holds_the_ids_of_two_more_batches():
    needed = ROWS * 4 * DIM + STEP + 2 * BATCH * (8 + 8)
    check_needed_memory(needed, DataType.FP32, "sgd", pipelined=True)


def processed(tables, device):
    bags = EmbeddingBagCollection(tables, is_weighted=True, device=device)
    return FeatureProcessedEmbeddingBagCollection(bags, PositionWeightedModuleCollection({"f": 4}))


@cases(
    "collection",
    {"weights": partial(EmbeddingBagCollection, is_weighted=True), "positions": processed},
)
def test_weights_and_positions_take_4_bytes_an_id(collection):
    needed = ROWS * 4 * DIM + STEP + 2 * BATCH * (8 + 8) + 3 * BATCH * 4
    check_needed_memory(needed, DataType.FP32, "sgd", pipelined=True, collection=collection)
