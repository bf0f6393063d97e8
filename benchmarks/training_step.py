"""A training step, the same for every kind of tables: SGD on all weights, one batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

RATE = 0.01


def stepping(model: nn.Module, dense: Tensor, features: object) -> Callable[[], float]:
    """One step a call, on one thread; gives the number of examples.

    Args:
        model: ``(dense, features)`` to logits ``(examples, 1)``. Tables that train in backward have
            no gradients of their own.
        dense: float32 ``(examples, dense)``.
        features: a KeyedJaggedTensor of the model's.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (len(dense),), generator=generator).float()
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=RATE)

    def step() -> float:
        optimizer.zero_grad()
        logits = model(dense, features).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return len(dense)

    return step
