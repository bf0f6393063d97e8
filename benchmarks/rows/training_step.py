"""What fusing the optimizer into the tables' backward pass gains, a training step of *small*."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.harness import Row, Side, compare, loop
from benchmarks.models import DENSE, ROWS, SPARSE, small_dlrm, small_tables
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM
from embershard.modules import EmbeddingBagCollection, FusedEmbeddingBagCollection

__all__ = ["measure"]

BATCH = 512
RATE = 0.01


def measure(folder: Path) -> list[Row]:
    """512 examples a step, SGD on all weights, one thread. ``folder`` is not used."""
    del folder
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dense = torch.randn(BATCH, DENSE)
    labels = torch.randint(2, (BATCH,)).float()
    sparse = KeyedJaggedTensor(
        keys=[f"f{i}" for i in range(SPARSE)],
        values=torch.randint(ROWS, (SPARSE * BATCH,)),
        lengths=torch.ones(SPARSE * BATCH, dtype=torch.int64),
    )
    fused = small_dlrm(
        FusedEmbeddingBagCollection(small_tables(), optimizer="sgd", learning_rate=RATE)
    )
    plain = small_dlrm(EmbeddingBagCollection(small_tables()))

    def side(name: str, model: DLRM) -> Side:
        parameters = [each for each in model.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(parameters, lr=RATE)

        def step() -> int:
            optimizer.zero_grad()
            logits = model(dense, sparse).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            return BATCH

        return loop(name, step)

    row = compare(
        "training_step/small",
        f"training step of {BATCH} examples, *small* model, SGD, 1 thread",
        "examples/s",
        ours=side("fused tables", fused),
        theirs=side("plain torch", plain),
    )
    return [row]
