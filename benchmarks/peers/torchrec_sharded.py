"""A rank of TorchRec's sharded training, under ``torchrun``:

python -m benchmarks.peers.torchrec_sharded step|sparse PLAN TABLES
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.distributed.sharding_plan import (
    column_wise,
    construct_module_sharding_plan,
    row_wise,
    table_wise,
)
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from torchrec.models.dlrm import DLRM
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from benchmarks.sharded_step import (
    DENSE,
    DENSE_LAYERS,
    DIM,
    OVER_LAYERS,
    RATE,
    ROWS,
    Case,
    Pooled,
    serve_steps,
    start_rank,
)


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
    tables = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    apply_optimizer_in_backward(RowWiseAdagrad, tables.parameters(), {"lr": RATE})
    model = (
        Pooled(tables) if case.part == "sparse" else DLRM(tables, DENSE, DENSE_LAYERS, OVER_LAYERS)
    )
    cuts = {config.name: (case.plan, at) for at, config in enumerate(configs)}
    sharded = sharded_model(model, tables, cuts)
    serve_steps(
        case,
        sharded,
        lambda keys, ids, lengths: KeyedJaggedTensor(keys=keys, values=ids, lengths=lengths),
    )
    dist.destroy_process_group()


def sharded_model(
    model: nn.Module, tables: EmbeddingBagCollection, cuts: Mapping[str, tuple[str, int]]
) -> DistributedModelParallel:
    """A model with a collection on all ranks. ``cuts``: by table, its plan and its number."""
    sharder, ranks = EmbeddingBagCollectionSharder(), dist.get_world_size()
    plan = construct_module_sharding_plan(
        tables,
        {name: _cut_by(plan, table, ranks) for name, (plan, table) in cuts.items()},
        sharder=sharder,
        local_size=ranks,
        world_size=ranks,
        device_type="cpu",
    )
    path = next(name for name, module in model.named_modules() if module is tables)
    return DistributedModelParallel(
        model,
        device=torch.device("cpu"),
        env=ShardingEnv.from_process_group(dist.group.WORLD),
        plan=ShardingPlan(plan={path: plan}),
        sharders=[sharder],
    )


def _cut_by(plan: str, table: int, ranks: int) -> Any:
    """TorchRec's helper of a plan, of the table with that number."""
    cuts = {
        "table_wise": table_wise(rank=table % ranks),
        "row_wise": row_wise(),
        "column_wise": column_wise(ranks=list(range(ranks))),
    }
    return cuts[plan]


if __name__ == "__main__":
    main()
