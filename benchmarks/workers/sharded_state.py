"""A rank that holds half of a large table, under ``torchrun``: memory, and saving beside training.

python -m benchmarks.workers.sharded_state
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from benchmarks.child import serve_blocks
from benchmarks.sharded_step import start_rank, told
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.sharding import (
    AsyncStateWriter,
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingPlan,
    construct_module_sharding_plan,
    row_wise,
    state_blocks,
)

ROWS, DIM, EXAMPLES = 1_600_000, 64, 256
KIB: Final = 1024


def main() -> None:
    """Joins the ranks, builds and trains a step, then serves blocks."""
    start_rank()
    before = peak_bytes()
    model = build()
    ids = torch.arange(EXAMPLES) * (ROWS // EXAMPLES)
    features = KeyedJaggedTensor(["f"], ids, lengths=torch.ones(EXAMPLES).long())
    model(features).values().sum().backward()
    peak = peak_bytes() - before
    blocks = state_blocks(model, group=dist.group.WORLD)
    # Row-wise state stands in one block for each column range, here one.
    held = sum(each.tensor.numel() * each.tensor.element_size() for each in blocks)
    writer = AsyncStateWriter(dist.new_group(backend="gloo"))
    box = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(box)
    folder = Path(box[0])

    def block(_: float) -> Mapping[str, float]:
        dist.barrier()
        started = time.perf_counter()
        copies = [each.tensor.detach().clone() for each in blocks]
        copied = time.perf_counter() - started
        del copies
        started = time.perf_counter()
        writer.start(blocks, folder / "state", lambda: None)
        hold = time.perf_counter() - started
        writer.wait()
        if dist.get_rank() == 0:
            shutil.rmtree(folder / "state")
        dist.barrier()
        return {"peak_bytes": peak, "state_bytes": held, "hold_us": hold * 1e6,
                "copy_us": copied * 1e6}  # fmt: skip

    if dist.get_rank():
        while told(0):
            block(0)
    else:
        serve_blocks(lambda seconds: block(told(1) * seconds))
        told(0)
        shutil.rmtree(folder)
    dist.destroy_process_group()


def build() -> DistributedModelParallel:
    """One table in row ranges."""
    table = EmbeddingBagConfig(
        name="t", num_embeddings=ROWS, embedding_dim=DIM, feature_names=["f"]
    )
    collection = EmbeddingBagCollection([table], device="meta")
    plan = construct_module_sharding_plan(collection, {"t": row_wise()})
    sharder = EmbeddingBagCollectionSharder({"optimizer": "rowwise_adagrad"})
    return DistributedModelParallel(collection, plan=ShardingPlan({"": plan}), sharders=[sharder])


def peak_bytes() -> float:
    """The most that this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


if __name__ == "__main__":
    main()
