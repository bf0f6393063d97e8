"""Operations that TorchScript knows under another name, or with another type, than Python."""

from __future__ import annotations

import inspect
import operator
from typing import Any, Final

import torch
from torch import Tensor, fx, nn

__all__ = ["rewrite_for_torchscript"]


FLOATS: Final = (float, float | None, "float", "float | None")
"""Annotations of arguments that are floats."""


def rewrite_for_torchscript(graph: fx.Graph, root: nn.Module) -> None:
    """Give operations the form that TorchScript compiles.

    Args:
        graph: changed in place; nodes keep their names and what is known of their lines.
        root: holds the submodules that ``graph`` names.
    """
    for node in list(graph.nodes):
        node.kwargs = {name: given for name, given in node.kwargs.items() if name != "out"}
        if node.op == "call_function":
            _give_floats(node)
        if node.op == "call_method" and node.target == "norm":
            node.op, node.target = "call_function", torch.norm
        elif _gives_attention(node, root):
            for weights in [user for user in node.users if _is_item(user, 1)]:
                with graph.inserting_after(weights):
                    given = graph.call_function(_given, (weights,))
                given.stack_trace = weights.stack_trace
                weights.replace_all_uses_with(given, lambda user, given=given: user is not given)


def _give_floats(node: fx.Node) -> None:
    """``normalize(x, p=2)``: TorchScript takes no whole number for a float."""
    function: Any = node.target
    try:
        given = inspect.signature(function).bind(*node.args, **node.kwargs)
    except (TypeError, ValueError):  # A builtin, whose operator takes either.
        return
    for name, value in given.arguments.items():
        if type(value) is int and given.signature.parameters[name].annotation in FLOATS:
            given.arguments[name] = float(value)
    node.args, node.kwargs = given.args, given.kwargs


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
