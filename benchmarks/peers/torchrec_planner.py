"""Runs TorchRec's planner. Reads tables as JSON from standard input, and writes the plan, CPU
seconds and number of proposals as JSON in the last line."""

import json
import sys
import time
from typing import Any

import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import (
    EmbeddingPerfEstimator,
    EmbeddingStorageEstimator,
)
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints


def model_of(tables: list[dict[str, Any]]) -> torch.nn.Module:
    configs = [
        EmbeddingBagConfig(
            name=table["name"],
            num_embeddings=table["rows"],
            embedding_dim=table["dim"],
            feature_names=[table["name"]],
        )
        for table in tables
    ]
    collection = EmbeddingBagCollection(device=torch.device("meta"), tables=configs)
    return torch.nn.ModuleDict({"sparse": collection})


def main() -> None:
    request = json.load(sys.stdin)
    tables, ranks = request["tables"], request["ranks"]
    topology = Topology(
        world_size=ranks,
        compute_device="cpu",
        ddr_cap=request["cap"],
        local_world_size=ranks,
    )
    constraints = {
        table["name"]: ParameterConstraints(
            sharding_types=["table_wise", "column_wise", "row_wise"],
            compute_kernels=["fused"],
            pooling_factors=[table["pooling"]],
        )
        for table in tables
    }
    estimators = [
        EmbeddingPerfEstimator(topology, constraints),
        EmbeddingStorageEstimator(topology, constraints),
    ]
    planner = EmbeddingShardingPlanner(
        topology=topology,
        enumerator=EmbeddingEnumerator(
            topology, request["batch_size"], constraints=constraints, estimator=estimators
        ),
        batch_size=request["batch_size"],
        storage_reservation=FixedPercentageStorageReservation(0.0),
        timeout_seconds=request["seconds_max"],
        constraints=constraints,
    )
    sharders = [EmbeddingBagCollectionSharder(fused_params={})]
    start = time.process_time()
    plan = planner.plan(model_of(tables), sharders)
    seconds = time.process_time() - start
    rectangles = {}
    for name, sharding in plan.plan["sparse"].items():
        rectangles[name] = [
            [
                shard.shard_offsets[0],
                shard.shard_offsets[0] + shard.shard_sizes[0],
                shard.shard_offsets[1],
                shard.shard_offsets[1] + shard.shard_sizes[1],
                shard.placement.rank(),
            ]
            for shard in sharding.sharding_spec.shards
        ]
    answer = {"plan": rectangles, "cpu_seconds": seconds, "proposals": planner._num_proposals}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
