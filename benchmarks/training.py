"""A training step of *small*, the same for every kind of tables: SGD on all weights, one batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["BATCH", "DENSE", "RATE", "ROWS", "SPARSE", "lists", "stepping"]

BATCH = 512
RATE = 0.01
DENSE = 13
SPARSE = 26
ROWS = 100_000


def lists() -> dict[str, Any]:
    """Keys, values and lengths of a KeyedJaggedTensor, embershard's or TorchRec's: one id each."""
    generator = torch.Generator().manual_seed(0)
    return {
        "keys": [f"f_{at}" for at in range(SPARSE)],
        "values": torch.randint(ROWS, (SPARSE * BATCH,), generator=generator),
        "lengths": torch.ones(SPARSE * BATCH, dtype=torch.int64),
    }


def stepping(model: nn.Module, features: object) -> Callable[[], float]:
    """One step a call, on one thread; gives the number of examples.

    Args:
        model: ``(dense, features)`` to logits ``(BATCH, 1)``. Tables that train in backward have
            no gradients of their own.
        features: of ``lists()``.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(BATCH, DENSE, generator=generator)
    labels = torch.randint(2, (BATCH,), generator=generator).float()
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=RATE)

    def step() -> float:
        optimizer.zero_grad()
        logits = model(dense, features).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return BATCH

    return step
