"""A rank of sharded training, under ``torchrun``:

python -m benchmarks.workers.sharded_training PART PLAN TABLES
"""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.sharded_step import (
    DENSE,
    DENSE_LAYERS,
    DIM,
    EXAMPLES,
    OVER_LAYERS,
    RATE,
    Case,
    Pooled,
    serve_steps,
    start_rank,
)
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.sharding import (
    CommType,
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ParameterShardingGenerator,
    QCommsConfig,
    ShardingPlan,
    TrainPipelineSparseDist,
    column_wise,
    construct_module_sharding_plan,
    get_qcomm_codecs_registry,
    row_wise,
    table_wise,
)


def main() -> None:
    """Joins the ranks, then serves blocks."""
    case = Case.from_arguments()
    start_rank()
    configs = [
        EmbeddingBagConfig(
            name=f"t{at}", num_embeddings=case.rows, embedding_dim=DIM, feature_names=[name]
        )
        for at, name in enumerate(case.names)
    ]
    tables = EmbeddingBagCollection(configs, device="meta")
    model = DLRM(tables, DENSE, DENSE_LAYERS, OVER_LAYERS) if case.is_whole else Pooled(tables)
    path = next(name for name, module in model.named_modules() if module is tables)
    kernel = "dense" if case.part == "dense" else "fused"
    cuts = {config.name: _cut(case.plan, at, kernel) for at, config in enumerate(configs)}
    comms = CommType(case.part) if case.part in ("fp16", "bf16", "int8") else CommType.FP32
    name = "adagrad" if case.part == "fused" else "rowwise_adagrad"
    sharder = EmbeddingBagCollectionSharder(
        {"optimizer": name, "learning_rate": RATE},
        get_qcomm_codecs_registry(QCommsConfig(comms, comms)),
    )
    sharded = DistributedModelParallel(
        model,
        plan=ShardingPlan({path: construct_module_sharding_plan(tables, cuts)}),
        sharders=[sharder],
        count_accesses=case.part == "counted",
    )
    serve_steps(
        case,
        sharded,
        jagged,
        step=_step(case, sharded),
        counted=_count_bytes(sharded.env.output_group),
    )
    dist.destroy_process_group()


def jagged(keys: list[str], ids: Tensor, lengths: Tensor) -> KeyedJaggedTensor:
    """Features of one id a bag."""
    return KeyedJaggedTensor(keys, ids, lengths=lengths)


def _step(case: Case, model: DistributedModelParallel) -> Callable[[Tensor, object], object] | None:
    """None: as of every library."""
    if case.part == "pipelined":
        labels = (torch.arange(EXAMPLES) % 2).float()

        def forward(batch: tuple[Tensor, KeyedJaggedTensor]) -> tuple[Tensor, None]:
            logits = model(*batch).squeeze(1)
            return nn.functional.binary_cross_entropy_with_logits(logits, labels), None

        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        pipeline = TrainPipelineSparseDist(
            model, optimizer, torch.device("cpu"), custom_model_fwd=forward
        )
        rank = dist.get_rank()
        batches = cycle(
            [(dense, jagged(case.names, *sparse)) for dense, *sparse in case.batches(rank)]
        )
        return lambda *_: pipeline.progress(batches)
    if case.part == "dense":
        adagrad = torch.optim.Adagrad(model.parameters(), lr=RATE)
        gradient = torch.full((EXAMPLES, case.tables * DIM), 1e-3)

        def step(_: Tensor, features: object) -> None:
            adagrad.zero_grad()
            model(features).backward(gradient)
            adagrad.step()

        return step
    return None


def _count_bytes(group: Any) -> Callable[[], float]:
    """Bytes that this rank sends to all ranks, itself too, in the exchanges of a group."""
    sent, exchange = 0.0, dist.all_to_all_single

    def counting(output: Tensor, given: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        if kwargs["group"] is group:
            sent += given.numel() * given.element_size()
        return exchange(output, given, *args, **kwargs)

    setattr(dist, "all_to_all_single", counting)  # noqa: B010  mypy refuses the assignment
    return lambda: sent


def _cut(plan: str, table: int, kernel: str) -> ParameterShardingGenerator:
    ranks = list(range(dist.get_world_size()))
    cuts = {
        "table_wise": table_wise(rank=table % len(ranks), compute_kernel=kernel),
        "row_wise": row_wise(),
        "column_wise": column_wise(ranks=ranks),
    }
    return cuts[plan]


if __name__ == "__main__":
    main()
