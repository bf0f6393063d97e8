"""A rank with half of a large table: measures its memory and an asynchronous save.

Run ``python -m benchmarks.workers.sharded_state`` under ``torchrun``. Rank 0 speaks the line
protocol of `benchmarks.child`.
"""

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed._shard.sharded_tensor.api import ShardedTensor

from benchmarks.child import memory_bytes, serve_blocks
from benchmarks.sharded_step import broadcast_steps, start_rank
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.optim.keyed import local_pieces
from embershard.sharding import (
    AsyncStateWriter,
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingPlan,
    construct_module_sharding_plan,
    row_wise,
    state_tensors,
)
from embershard.sharding.tables import ROWS_OF_BLOCK

ROWS, DIM, EXAMPLES = 1_600_000, 64, 32_768
FEW_ROWS: Final = 1600
RANKS: Final = 2
BLOCKS: Final = 2 * ROWS_OF_BLOCK * DIM * 4
"""Bytes needed to build from device meta, see docs/sharding.md, "Memory of a rank"."""
STEP: Final = 8 * EXAMPLES + 8 * EXAMPLES * RANKS + 4 * (2 * DIM * EXAMPLES * RANKS) * 2
"""Bytes of a step with one id per example. Each of the two ranks receives half of all ids."""


def main() -> None:
    start_rank()
    step(build(FEW_ROWS), FEW_ROWS)  # The first step loads libraries and starts threads.
    before = memory_bytes("self")
    Path("/proc/self/clear_refs").write_text("5")  # Resets the peak.
    model = build(ROWS)
    step(model, ROWS)
    peak = memory_bytes("self", "VmHWM") - before
    tensors = state_tensors(model, group=dist.group.WORLD)
    shards = [
        shard
        for tensor in tensors.values()
        for shard in (
            local_pieces(tensor).values() if isinstance(tensor, ShardedTensor) else [tensor]
        )
    ]
    # The table is cut only by rows, so nothing is counted twice.
    held = sum(shard.numel() * shard.element_size() for shard in shards)
    writer = AsyncStateWriter(dist.new_group(backend="gloo"))
    box = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(box)
    folder = Path(box[0])

    def block(_: float) -> Mapping[str, float]:
        dist.barrier()
        started = time.perf_counter()
        copies = [shard.detach().clone() for shard in shards]
        copied = time.perf_counter() - started
        del copies
        started = time.perf_counter()
        writer.start(tensors, folder / "state", lambda: None)
        hold = time.perf_counter() - started
        writer.wait()
        if dist.get_rank() == 0:
            shutil.rmtree(folder / "state")
        dist.barrier()
        return {
            "peak_bytes": peak,
            "state_bytes": held,
            "stated_bytes": held + max(BLOCKS, STEP),
            "hold_us": hold * 1e6,
            "copy_us": copied * 1e6,
        }

    if dist.get_rank():
        while broadcast_steps(0):
            block(0)
    else:
        serve_blocks(lambda seconds: block(broadcast_steps(1) * seconds))
        broadcast_steps(0)
        shutil.rmtree(folder)
    dist.destroy_process_group()


def build(rows: int) -> DistributedModelParallel:
    table = EmbeddingBagConfig(
        name="t", num_embeddings=rows, embedding_dim=DIM, feature_names=["f"]
    )
    collection = EmbeddingBagCollection([table], device="meta")
    plan = construct_module_sharding_plan(collection, {"t": row_wise()})
    sharder = EmbeddingBagCollectionSharder({"optimizer": "rowwise_adagrad"})
    return DistributedModelParallel(collection, plan=ShardingPlan({"": plan}), sharders=[sharder])


def step(model: DistributedModelParallel, rows: int) -> None:
    """Run forward and backward with one id per example. The ids are spread over all rows."""
    ids = torch.linspace(0, rows - 1, EXAMPLES).long()
    features = KeyedJaggedTensor(["f"], ids, lengths=torch.ones(EXAMPLES).long())
    model(features).values().sum().backward()


if __name__ == "__main__":
    main()
