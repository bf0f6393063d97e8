"""TorchRec's training step of *small* as a child; units are examples.

python -m benchmarks.peers.torchrec_training fused|plain
"""

from __future__ import annotations

import sys

import torch
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.models.dlrm import DLRM
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

from benchmarks.child import answer
from benchmarks.training import DENSE, RATE, ROWS, SPARSE, lists, stepping

__all__: list[str] = []

DIM = 64


def main() -> None:
    """Set up, then serve blocks."""
    kind = sys.argv[1]
    assert kind in ("fused", "plain")
    device = torch.device("cpu")
    tables = [
        EmbeddingBagConfig(
            name=f"f_{at}", num_embeddings=ROWS, embedding_dim=DIM, feature_names=[f"f_{at}"]
        )
        for at in range(SPARSE)
    ]
    if kind == "fused":
        collection = FusedEmbeddingBagCollection(
            tables, optimizer_type=torch.optim.SGD, optimizer_kwargs={"lr": RATE}, device=device
        )
    else:
        collection = EmbeddingBagCollection(tables=tables, device=device)
    model = DLRM(collection, DENSE, [512, 256, DIM], [512, 512, 256, 1])
    answer(stepping(model, KeyedJaggedTensor(**lists())))


if __name__ == "__main__":
    main()
