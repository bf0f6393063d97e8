"""A rank of sharded training, under ``torchrun``:

python -m benchmarks.workers.sharded_training step|sparse|counted PLAN TABLES
"""

from __future__ import annotations

from typing import Final

import torch.distributed as dist

from benchmarks.sharded_step import (
    DENSE,
    DENSE_LAYERS,
    DIM,
    OVER_LAYERS,
    ROWS,
    Case,
    Pooled,
    serve_steps,
    start_rank,
)
from benchmarks.training_step import RATE
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ParameterShardingGenerator,
    ShardingPlan,
    column_wise,
    construct_module_sharding_plan,
    row_wise,
    table_wise,
)

__all__: list[str] = []

FUSED_PARAMS: Final = {"optimizer": "rowwise_adagrad", "learning_rate": RATE}


def main() -> None:
    """Joins the ranks, then serves blocks."""
    case = Case.from_arguments()
    start_rank()
    configs = [
        EmbeddingBagConfig(
            name=f"t{at}", num_embeddings=ROWS, embedding_dim=DIM, feature_names=[name]
        )
        for at, name in enumerate(case.names)
    ]
    tables = EmbeddingBagCollection(configs, device="meta")
    model = (
        DLRM(tables, DENSE, DENSE_LAYERS, OVER_LAYERS) if case.part == "step" else Pooled(tables)
    )
    path = next(name for name, module in model.named_modules() if module is tables)
    cuts = {config.name: _cut(case.plan, at) for at, config in enumerate(configs)}
    sharded = DistributedModelParallel(
        model,
        plan=ShardingPlan({path: construct_module_sharding_plan(tables, cuts)}),
        sharders=[EmbeddingBagCollectionSharder(FUSED_PARAMS)],
        count_accesses=case.part == "counted",
    )
    serve_steps(
        case, sharded, lambda keys, ids, lengths: KeyedJaggedTensor(keys, ids, lengths=lengths)
    )
    dist.destroy_process_group()


def _cut(plan: str, table: int) -> ParameterShardingGenerator:
    ranks = list(range(dist.get_world_size()))
    cuts = {
        "table_wise": table_wise(rank=table % len(ranks)),
        "row_wise": row_wise(),
        "column_wise": column_wise(ranks=ranks),
    }
    return cuts[plan]


if __name__ == "__main__":
    main()
