"""Operations that TorchScript knows under another name, or with another type, than Python."""

from __future__ import annotations

import operator

import torch
from torch import Tensor, fx, nn

__all__ = ["rewrite_for_torchscript"]


def rewrite_for_torchscript(graph: fx.Graph, root: nn.Module) -> None:
    """Give operations the form that TorchScript compiles.

    Args:
        graph: changed in place; nodes keep their names and what is known of their lines.
        root: holds the submodules that ``graph`` names.
    """
    for node in list(graph.nodes):
        node.kwargs = {name: given for name, given in node.kwargs.items() if name != "out"}
        if node.op == "call_method" and node.target == "norm":
            node.op, node.target = "call_function", torch.norm
        elif _gives_attention(node, root):
            for weights in [user for user in node.users if _is_item(user, 1)]:
                with graph.inserting_after(weights):
                    given = graph.call_function(_given, (weights,))
                given.stack_trace = weights.stack_trace
                weights.replace_all_uses_with(given, lambda user, given=given: user is not given)


def _given(weights: Tensor | None) -> Tensor:
    """Attention weights, which TorchScript takes for a tensor or None."""
    assert weights is not None
    return weights


def _gives_attention(node: fx.Node, root: nn.Module) -> bool:
    if node.op == "call_module":
        return isinstance(root.get_submodule(str(node.target)), nn.MultiheadAttention)
    return node.target is nn.functional.multi_head_attention_forward


def _is_item(node: fx.Node, place: int) -> bool:
    return bool(node.target is operator.getitem and node.args[1] == place)
