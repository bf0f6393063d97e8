"""A rank of TorchRec that loads a checkpoint of embershard and saves its own, under ``torchrun``:

python -m tests.sharding.torchrec_loads TABLES.json CHECKPOINT OUT

TABLES.json: a list of {name, rows, dim, features, plan}. Weights are NaN before they are loaded.
The folder OUT gets two results:

    <rank>.pt    list of key, offsets and values of the rank's shards
    theirs       checkpoint of twice these values
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
    """Builds the model, loads the checkpoint, and writes the rank's shards."""
    tables, checkpoint, out = sys.argv[1:]
    start_rank()
    document = json.loads(Path(tables).read_text())
    configs = [
        EmbeddingBagConfig(
            name=table["name"],
            num_embeddings=table["rows"],
            embedding_dim=table["dim"],
            feature_names=table["features"],
        )
        for table in document
    ]
    collection = EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": 0.1})
    model = sharded_model(
        nn.ModuleDict({"sparse": collection}),
        collection,
        {table["name"]: (table["plan"], 0) for table in document},
    )
    state = {**model.state_dict(), "optimizer": model.fused_optimizer.state_dict()}
    shards = list(_shards("", state))
    for _, _, values in shards:
        values.fill_(torch.nan)
    load(state, checkpoint_id=checkpoint)
    torch.save(list(_shards("", state)), Path(out) / f"{dist.get_rank()}.pt")
    for _, _, values in shards:
        values.mul_(2)
    save(state, checkpoint_id=Path(out) / "theirs")
    dist.destroy_process_group()


def _shards(key: str, value: Any) -> Any:
    """Key, offsets and values of each local shard within a state dict."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _shards(f"{key}.{name}" if key else name, member)
    elif hasattr(value, "local_shards"):
        for shard in value.local_shards():
            yield key, tuple(shard.metadata.shard_offsets), shard.tensor.detach()
    elif isinstance(value, torch.Tensor):
        yield key, (0,) * value.dim(), value.detach()


if __name__ == "__main__":
    main()
