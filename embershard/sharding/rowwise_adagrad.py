"""``RowWiseAdagrad``: Adagrad with one number of state a row, which torch does not have."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from embershard.errors import InputError


class RowWiseAdagrad(torch.optim.Optimizer):
    """``sum += mean(g * g); row -= lr * g / (sqrt(sum) + eps)``, with ``sum`` one number a row.

    Given to ``apply_optimizer_in_backward`` it names what trains tables in their backward pass, and
    is not built. Built, it trains tables of ``data_parallel``, as any optimizer of torch does.

    Args:
        params: of 2 dimensions.
        lr: step size.
        eps: keeps the first step of a row finite.

    Raises:
        InputError: a parameter of other dimensions, or a setting outside its range.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 0.01,
        eps: float = 1e-8,
    ) -> None:
        super().__init__(params, {"lr": lr, "eps": eps})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As of torch.optim.

        Raises:
            InputError: as of the class; the group is not added.
        """
        super().add_param_group(param_group)
        if fault := _fault(self.param_groups[-1]):
            self.param_groups.pop()
            raise InputError(f"RowWiseAdagrad: {fault}")

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """As of torch.optim. State: ``sum``, of the parameter's dtype, ``(rows, 1)``."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is None:
                    continue
                state = self.state[each]
                if not state:
                    state["sum"] = each.new_zeros(len(each), 1)
                state["sum"] += each.grad.square().mean(dim=1, keepdim=True)
                each.addcdiv_(each.grad, state["sum"].sqrt() + group["eps"], value=-group["lr"])
        return loss


def _fault(group: dict[str, Any]) -> str:
    """What is wrong with a group. Empty: nothing."""
    lr, eps = group["lr"], group["eps"]
    if not 0 <= lr < math.inf:
        return f"lr: expected a finite number at least 0, got {lr}"
    if not 0 < eps < math.inf:
        return f"eps: expected a finite number over 0, got {eps}"
    for each in group["params"]:
        if each.dim() != 2:
            return f"params: expected rows and columns, got shape {tuple(each.shape)}"
    return ""
