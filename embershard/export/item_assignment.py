"""``y[index] = value`` in a forward: in a trace ``y`` becomes a new tensor, nothing is written."""

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
"""Methods of a tensor whose results share its memory, or may."""


def item_assigned(tensor: Tensor, index: Any, value: Any) -> Tensor:
    """What ``tensor`` is after ``tensor[index] = value``, as a copy."""
    copy = tensor.clone()
    copy[index] = value
    return copy


def is_shared(node: fx.Node) -> bool:
    """Whether what `item_assigned` writes would show in other tensors that are used later: the
    tensor that ``node`` assigns to may be a view, or have views."""
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
    """`item_assigned` in operations that TorchScript has. None: an index that mixes tensors or
    lists with anything else. ``tensors``: which nodes in the index are tensors."""
    given: list[Any] = list(index) if isinstance(index, tuple) else [index]
    gathered = [isinstance(each, list) or _is_one_of(tensors, each) for each in given]
    if all(_is_one_of(tensors, each) for each in given):
        put = _put if isinstance(value, fx.Node) else _put_number
        return graph.call_function(put, (tensor, given, value))
    if any(gathered):  # The indexed part is a copy then, not a view to write into.
        return None
    copy = graph.call_function(torch.clone, (tensor,))
    part = graph.call_function(operator.getitem, (copy, index))
    write = _write if isinstance(value, fx.Node) else _write_number
    return graph.call_function(write, (copy, part, value))


def _is_one_of(tensors: set[fx.Node], given: object) -> bool:
    return isinstance(given, fx.Node) and given in tensors


# TorchScript compiles these.


def _write(whole: Tensor, part: Tensor, value: Tensor) -> Tensor:
    part.copy_(value)
    return whole


def _write_number(whole: Tensor, part: Tensor, value: float) -> Tensor:
    part.fill_(value)
    return whole


def _put(whole: Tensor, index: list[Tensor], value: Tensor) -> Tensor:
    places: list[Tensor | None] = [each for each in index]  # noqa: C416
    return torch.index_put(whole, places, value.to(whole.dtype))


def _put_number(whole: Tensor, index: list[Tensor], value: float) -> Tensor:
    return _put(whole, index, torch.full([], value))
