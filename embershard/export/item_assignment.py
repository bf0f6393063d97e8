"""Traces ``y[index] = value`` in a forward as a new tensor ``y``. A program writes only
into copies of its own, never into a tensor that other operations read."""

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

# fmt: off
VIEWS = frozenset({
    "chunk", "detach", "diagonal", "expand", "flatten", "narrow", "permute", "reshape", "select",
    "split", "squeeze", "swapaxes", "t", "transpose", "unbind", "unflatten", "unfold", "unsqueeze",
    "view", "view_as",
})
# fmt: on
"""Methods of tensors whose results may share the tensor's memory."""


def item_assigned(tensor: Tensor, index: Any, value: Any) -> Tensor:
    """A copy of ``tensor`` after ``tensor[index] = value``."""
    copy = tensor.clone()
    copy[index] = value
    return copy


def is_shared(node: fx.Node) -> bool:
    """True if a later node uses another tensor with the memory that ``node`` assigns to. In the
    module that tensor changes too, but `item_assigned` only changes a copy."""
    later = set(_following(node))
    source = node.args[0]
    while isinstance(source, fx.Node):
        parts = [user for user in source.users if _is_view(user)]
        if any(later & set(part.users) for part in parts if part is not node.args[0]):
            return True
        if source is not node.args[0] and later & set(source.users):
            return True
        source = source.args[0] if _is_view(source) else None
    return False


def _following(node: fx.Node) -> Iterator[fx.Node]:
    while node.next.op != "root":
        node = node.next
        yield node


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return True
    return node.op == "call_method" and node.target in VIEWS


def emit_assignment(
    graph: fx.Graph, tensor: fx.Node, index: Any, value: fx.Node | float, tensors: set[fx.Node]
) -> fx.Node | None:
    """Add the operations of `item_assigned` for TorchScript, and return the new tensor. Returns
    None if the index mixes tensors or lists with anything else. ``tensors`` are nodes in the
    index."""
    parts: list[Any] = list(index) if isinstance(index, tuple) else [index]
    if all(_is_one_of(tensors, part) for part in parts):
        put = _put if isinstance(value, fx.Node) else _put_number
        return graph.call_function(put, (tensor, parts, value))
    if any(isinstance(part, list) or _is_one_of(tensors, part) for part in parts):
        return None  # Indexing would return a copy, not a view to write into.
    copy = graph.call_function(torch.clone, (tensor,))
    part = graph.call_function(operator.getitem, (copy, index))
    write = _write if isinstance(value, fx.Node) else _write_number
    return graph.call_function(write, (copy, part, value))


def _is_one_of(tensors: set[fx.Node], part: object) -> bool:
    return isinstance(part, fx.Node) and part in tensors


# TorchScript compiles the following functions.


def _write(whole: Tensor, part: Tensor, value: Tensor) -> Tensor:
    part.copy_(value)
    return whole


def _write_number(whole: Tensor, part: Tensor, value: float) -> Tensor:
    part.fill_(value)
    return whole


def _put(whole: Tensor, index: list[Tensor], value: Tensor) -> Tensor:
    places: list[Tensor | None] = [part for part in index]  # noqa: C416  TorchScript needs it.
    return torch.index_put(whole, places, value.to(whole.dtype))


def _put_number(whole: Tensor, index: list[Tensor], value: float) -> Tensor:
    return _put(whole, index, torch.full([], value))
