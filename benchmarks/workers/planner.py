"""Plans the 856 tables on one thread. Speaks the line protocol of `benchmarks.child`.

``python -m benchmarks.workers.planner RANKS [PEER_PYTHON]``. With PEER_PYTHON, TorchRec's planner
makes the plan in that environment. embershard's planner computes the costs of either plan.
"""

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import torch
from torch import nn

from benchmarks.child import serve_blocks
from benchmarks.planner_tables import DrawnTable, reuse_tables
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package.rectangles import Shard
from embershard.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from embershard.sharding import (
    EmbeddingBagCollectionSharder,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
)

BATCH_SIZE: Final = 512
PATH: Final = "sparse"
MEMORY_SLACK: Final = 1.5
"""Memory of all ranks, relative to the size of the tables."""

PEER: Final = Path(__file__).parents[1] / "peers" / "torchrec_planner.py"
PEER_SECONDS: Final = 300
"""Time after which TorchRec's planner returns its best proposal so far."""


class Case:
    def __init__(self, tables: Sequence[DrawnTable], ranks: int) -> None:
        size = sum(4 * table.rows * table.dim for table in tables)
        self.tables, self.ranks = tables, ranks
        self.cap_bytes = int(size * MEMORY_SLACK / ranks) + (1 << 30)
        configs = [
            EmbeddingBagConfig(
                name=table.name,
                num_embeddings=table.rows,
                embedding_dim=table.dim,
                feature_names=[table.name],
            )
            for table in tables
        ]
        self.model = nn.ModuleDict({PATH: EmbeddingBagCollection(configs, device="meta")})
        self.sharders = [EmbeddingBagCollectionSharder({"optimizer": "rowwise_adagrad"})]
        self.planner = EmbeddingShardingPlanner(
            Topology(ranks, ddr_cap=self.cap_bytes),
            BATCH_SIZE,
            constraints={
                table.name: ParameterConstraints(
                    pooling_factors=[table.pooling], cached_share=table.cached_share
                )
                for table in tables
            },
            storage_reservation=0.0,
        )

    def ours(self, _: float) -> Mapping[str, float]:
        start = time.process_time()
        plan = self.planner.plan(self.model, self.sharders)
        cpu_seconds = time.process_time() - start
        report = self.planner.report
        return {
            "step_us": report.placement_seconds * 1e6,
            "bound_us": report.bound_seconds * 1e6,
            "busiest_us": self.busiest_us(plan),
            "cpu_seconds": cpu_seconds,
        }

    def theirs(self, python: str) -> Mapping[str, float]:
        request = {
            "tables": [table._asdict() for table in self.tables],
            "ranks": self.ranks,
            "cap": self.cap_bytes,
            "batch_size": BATCH_SIZE,
            "seconds_max": PEER_SECONDS,
        }
        done = subprocess.run(
            [python, "-W", "ignore", PEER],
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        return {
            "busiest_us": self.busiest_us(sharding_plan(answer["plan"])),
            "cpu_seconds": answer["cpu_seconds"],
            "proposals": answer["proposals"],
        }

    def busiest_us(self, plan: ShardingPlan) -> float:
        """In both phases together."""
        loads = self.planner.price(plan, self.model, self.sharders)
        return max(load.seconds for load in loads) * 1e6


def sharding_plan(rectangles: Mapping[str, Sequence[Sequence[int]]]) -> ShardingPlan:
    """Make a plan from shards by table: first row, end row, first column, end column, rank."""
    sharding = {
        name: ParameterSharding(
            sharding_type="column_wise",  # Has no effect, since the shards are explicit.
            compute_kernel="fused",
            sharding_spec=tuple(
                Shard(table=name, rows=(first, end), columns=(left, right), devices=(rank,))
                for first, end, left, right, rank in shards
            ),
        )
        for name, shards in rectangles.items()
    }
    return ShardingPlan({PATH: EmbeddingModuleShardingPlan(sharding)})


def main(ranks: int, *peer: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    case = Case(reuse_tables(), ranks)
    serve_blocks((lambda _: case.theirs(*peer)) if peer else case.ours)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
