"""Finds the operation that makes an example's output depend on its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx, nn

OVER_ROWS = frozenset(
    {"amax", "amin", "log_softmax", "max", "mean", "min", "norm", "softmax", "std", "sum", "var"}
)

Recording: TypeAlias = dict[fx.Node, Tensor]


def recorded(module: nn.Module, graph: fx.Graph, arguments: Sequence[Any]) -> Recording:
    """Run a trace of ``module``: every tensor on the way, by node."""
    recorder = _Recorder(module, graph)
    recorder.run(*arguments)
    return recorder.values


def first_crossing(
    together: Recording, alone: Sequence[Recording], close: Callable[[Tensor, Tensor], bool]
) -> fx.Node | None:
    """The first node whose value for a batch is not that of its examples, one after another."""
    for node, value in together.items():
        parts = [each[node] for each in alone]
        if not _constant(value, parts) and not _by_rows(value, parts, close):
            return node
    return None


def crossing_remedy(node: fx.Node) -> str:
    """What to write in place of a node of `first_crossing`, ``; write ...``, or nothing."""
    target: Any = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    transposed = name == "t" or (target is getattr and node.args[1] == "T")
    if transposed or name in ("matmul", "mm"):
        return "; write (user * item).sum(-1) for one product per example"
    dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
    if name in ("softmax", "log_softmax") and dim not in (0, None):
        return (
            "; padding counts in this softmax; write masked_fill(~mask, -1e9) before it, and "
            "multiply the softmax by the mask"
        )
    if name in OVER_ROWS and dim in (0, None):
        return f"; write {name} over dim=-1, or nn.BatchNorm1d for statistics of the training data"
    return ""


class _Recorder(fx.Interpreter):
    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self.values: Recording = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, Tensor):
            self.values[n] = value
        return value


def _constant(value: Tensor, parts: Sequence[Tensor]) -> bool:
    """As a parameter is: the same whatever the batch."""
    return all(torch.equal(part, value) for part in parts)


def _by_rows(
    value: Tensor, parts: Sequence[Tensor], close: Callable[[Tensor, Tensor], bool]
) -> bool:
    """Any number of rows an example: its own, those of its reshaped vectors."""
    if value.ndim < 1 or any(part.ndim != value.ndim for part in parts):
        return False
    if len({part.shape[1:] for part in parts} | {value.shape[1:]}) == 1:
        return close(value, torch.cat(list(parts)))
    return _padded(value, parts, close)


def _padded(
    value: Tensor, parts: Sequence[Tensor], close: Callable[[Tensor, Tensor], bool]
) -> bool:
    """The same where lists were padded to the longest of a batch: what pads hold does not count."""
    rows = sum(len(part) for part in parts)
    rest = {part.shape[2:] for part in parts} | {value.shape[2:]}
    if value.ndim < 2 or len(rest) > 1 or len(value) != rows:
        return False
    if value.shape[1] != max(part.shape[1] for part in parts):
        return False
    cut = torch.split(value, [len(part) for part in parts])
    return all(close(own[:, : part.shape[1]], part) for own, part in zip(cut, parts, strict=True))
