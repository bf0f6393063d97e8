"""TorchRec's planner: tables as JSON on standard input, its plan, CPU seconds and number of
proposals as JSON on the last line. After ``seconds_max`` it returns the best of its proposals.

Runs in the peers' environment.
"""

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
    """One collection of tables, without weights."""
    configs = [
        EmbeddingBagConfig(
            name=each["name"],
            num_embeddings=each["rows"],
            embedding_dim=each["dim"],
            feature_names=[each["name"]],
        )
        for each in tables
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
        each["name"]: ParameterConstraints(
            sharding_types=["table_wise", "column_wise", "row_wise"],
            compute_kernels=["fused"],
            pooling_factors=[each["pooling"]],
        )
        for each in tables
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
    found = {}
    for name, sharding in plan.plan["sparse"].items():
        found[name] = [
            [
                shard.shard_offsets[0],
                shard.shard_offsets[0] + shard.shard_sizes[0],
                shard.shard_offsets[1],
                shard.shard_offsets[1] + shard.shard_sizes[1],
                shard.placement.rank(),
            ]
            for shard in sharding.sharding_spec.shards
        ]
    answer = {"plan": found, "cpu_seconds": seconds, "proposals": planner._num_proposals}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
