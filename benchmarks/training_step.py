"""A training step, the same for every kind of tables and every library."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

RATE = 0.01


def sgd_step(model: nn.Module) -> Callable[[Tensor, object], int]:
    """SGD on what is not trained in backward. Gives the number of examples.

    Args:
        model: dense values, float32 ``(examples, dense)``, and a KeyedJaggedTensor to logits
            ``(examples, 1)``.
    """
    trained = [
        each
        for each in model.parameters()
        if each.requires_grad and not hasattr(each, "_in_backward_optimizers")
    ]
    optimizer = torch.optim.SGD(trained, lr=RATE)

    def step(dense: Tensor, features: object) -> int:
        optimizer.zero_grad()
        logits = model(dense, features).squeeze(1)
        labels = (torch.arange(len(dense)) % 2).float()
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return len(dense)

    return step
