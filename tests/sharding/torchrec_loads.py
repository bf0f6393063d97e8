"""A rank of TorchRec that loads a checkpoint of ours and saves its own, under ``torchrun``:

python -m tests.sharding.torchrec_loads TABLES.json CHECKPOINT OUT

TABLES.json: a list of {name, rows, dim, features, plan}. OUT gets ``<rank>.pt``: a list of key,
offsets and values of the shards that the rank holds then, and the checkpoint ``theirs`` of twice
these values. Weights are NaN before.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from benchmarks.peers.torchrec_sharded import sharded_model
from benchmarks.sharded_step import start_rank


def main() -> None:
    """Builds the model, loads, and writes what the rank holds."""
    tables, checkpoint, out = sys.argv[1:]
    start_rank()
    document = json.loads(Path(tables).read_text())
    configs = [
        EmbeddingBagConfig(
            name=value["name"],
            num_embeddings=value["rows"],
            embedding_dim=value["dim"],
            feature_names=value["features"],
        )
        for value in document
    ]
    collection = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": 0.1})
    model = sharded_model(
        nn.ModuleDict({"sparse": collection}),
        collection,
        {value["name"]: (value["plan"], 0) for value in document},
    )
    state = {**model.state_dict(), "optimizer": model.fused_optimizer.state_dict()}
    held = list(_shards("", state))
    for _, _, values in held:
        values.fill_(torch.nan)
    load(state, checkpoint_id=checkpoint)
    torch.save(list(_shards("", state)), Path(out) / f"{dist.get_rank()}.pt")
    for _, _, values in held:
        values.mul_(2)
    save(state, checkpoint_id=Path(out) / "theirs")
    dist.destroy_process_group()


def _shards(key: str, value: Any) -> Any:
    """Key, offsets and values of each local shard within a state dict."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _shards(f"{key}.{name}" if key else name, item)
    elif hasattr(value, "local_shards"):
        for shard in value.local_shards():
            yield key, tuple(shard.metadata.shard_offsets), shard.tensor.detach()
    elif isinstance(value, torch.Tensor):
        yield key, (0,) * value.dim(), value.detach()


if __name__ == "__main__":
    main()
