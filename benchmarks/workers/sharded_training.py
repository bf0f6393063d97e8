"""A rank of sharded training with embershard. Run it under ``torchrun`` as
``python -m benchmarks.workers.sharded_training PART PLAN TABLES``, see `benchmarks.sharded_step`.
"""

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import embershard
from benchmarks.sharded_step import DIM, EXAMPLES, RATE, Case, Library, serve_steps, start_rank
from embershard import sharding
from embershard.jagged import KeyedJaggedTensor
from embershard.sharding import (
    CommType,
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    QCommsConfig,
    TrainPipelineSparseDist,
    get_qcomm_codecs_registry,
)

EMBERSHARD = Library(embershard, embershard.DLRM, plans=sharding, distributed=sharding)


def main() -> None:
    case = Case.from_arguments()
    start_rank()
    model, tables = EMBERSHARD.build(case)
    comms = CommType(case.part) if case.part in ("fp16", "bf16", "int8") else CommType.FP32
    name = "adagrad" if case.part == "fused" else "rowwise_adagrad"
    sharded = EMBERSHARD.shard(
        model,
        tables,
        case.cuts,
        EmbeddingBagCollectionSharder(
            {"optimizer": name, "learning_rate": RATE},
            get_qcomm_codecs_registry(QCommsConfig(comms, comms)),
        ),
        kernel="dense" if case.part == "dense" else "fused",
        count_accesses=case.part == "counted",
    )
    serve_steps(
        case,
        sharded,
        EMBERSHARD,
        step=_step(case, sharded),
        counted=_count_bytes(sharded.env.output_group),
    )
    dist.destroy_process_group()


def _step(case: Case, model: DistributedModelParallel) -> Callable[[Tensor, object], object] | None:
    """The step of a part that other libraries do not have. None for all other parts."""
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
            [
                (dense, EMBERSHARD.jagged(case.names, *sparse))
                for dense, *sparse in case.batches(rank)
            ]
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
    """Count the bytes that this rank sends in exchanges of a group, including those to itself."""
    sent, exchange = 0.0, dist.all_to_all_single

    def counting(output: Tensor, sent_tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal sent
        if kwargs["group"] is group:
            sent += sent_tensor.numel() * sent_tensor.element_size()
        return exchange(output, sent_tensor, *args, **kwargs)

    setattr(dist, "all_to_all_single", counting)  # noqa: B010  mypy refuses the assignment
    return lambda: sent


if __name__ == "__main__":
    main()
