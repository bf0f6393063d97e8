"""The inputs of a dense program: matrices and sequences of either scope, and what is taken of them;
what a traced value is: its scope, and whether it is a tensor or tells a size.

<scope>_inputs    [dense, pooled, values of sequence 0, its offsets, values of sequence 1, ...]
"""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from embershard.export.embeddings import SCOPES, Columns
from embershard.export.tracing import target_name
from embershard.jagged.segments import offsets_to_lengths, pad_jagged
from embershard.package.schema import Schema, Scope

Kind: TypeAlias = Literal["tensor", "shape", "size", "plain"]
"""shape: all sizes of a tensor. size: a number that depends on how many rows there are. plain:
anything else that is no tensor."""

# What asks a tensor for something that is the same in either scope.
PLAIN_ATTRIBUTES = frozenset({"device", "dtype", "ndim", "dim", "ndimension"})


@dataclass(frozen=True, slots=True)
class Value:
    """What a node of the traced graph became."""

    node: fx.Node

    scope: Scope | None
    """None: the same whatever R and B are, as parameters are."""

    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True)
class Pooled:
    """The KeyedTensor that an embedding module gives."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequences:
    """The dict from key to JaggedTensor that an embedding module without pooling gives."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One JaggedTensor of it."""

    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Regrouped:
    """What ``KeyedTensor.regroup`` gives: a tensor a group."""

    groups: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """The KeyedJaggedTensor that is forward's sparse input."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """One JaggedTensor of it."""

    key: str


Found: TypeAlias = Value | Pooled | Sequences | Sequence | Regrouped | Features | Feature


def result_of(node: fx.Node, copy: fx.Node, scope: Scope | None, kinds: list[Kind]) -> Value:
    """The value of an operation: ``node`` of the traced graph says what was asked of what, ``copy``
    is the node in the rewritten graph; scope and kinds are those of the operands."""
    asked = _asked(node)
    if asked in PLAIN_ATTRIBUTES:
        return Value(copy, None, "plain")
    if asked == "shape" or (asked == "size" and len(node.args) == 1 and not node.kwargs):
        return Value(copy, scope, "shape")
    if asked == "size":
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        return Value(copy, scope, "size") if dim == 0 else Value(copy, None, "plain")
    if asked in ("numel", "nelement", len):
        return Value(copy, scope, "size" if scope else "plain")
    if asked == "getitem" and kinds == ["shape"]:
        return _item_of_shape(node, copy, scope)
    if "tensor" not in kinds and _is_arithmetic(node.target):
        return Value(copy, scope, "size" if scope else "plain")
    return Value(copy, scope)


def is_in_place(node: fx.Node) -> bool:
    """Whether a node writes into one of its operands: ``x.add_(y)``, ``operator.iadd(x, y)``,
    ``embedding(rows, weight, max_norm=1)``."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = target_name(node)
    if _is_operator(node.target):
        return name in fx.graph.inplace_methods
    if any(node.kwargs.get(each) is not None for each in ("out", "max_norm")):
        return True
    return name.endswith("_") and not name.endswith("__")


def without_writing(node: fx.Node) -> str:
    """What to write in place of a node that `is_in_place`."""
    if node.kwargs.get("out") is not None:
        return "the call without out=, and use what it returns"
    if node.kwargs.get("max_norm") is not None:
        return "nn.Embedding(..., max_norm=...), whose rows are scaled once"
    return f"{target_name(node).strip('_')}, and use the new tensor that it returns"


def _asked(node: fx.Node) -> object:
    """The attribute, method or function: "shape" of ``x.shape``, "size" of ``x.size()``."""
    if node.op == "call_function":
        if node.target is getattr and len(node.args) > 1:
            return node.args[1]
        if _is_operator(node.target):
            return getattr(node.target, "__name__", None)
    return node.target


def _item_of_shape(node: fx.Node, copy: fx.Node, scope: Scope | None) -> Value:
    index: Any = node.args[1]
    if isinstance(index, slice):
        beyond_first = isinstance(index.start, int) and index.start > 0
        return Value(copy, None, "plain") if beyond_first else Value(copy, scope, "shape")
    return Value(copy, scope, "size") if index == 0 else Value(copy, None, "plain")


def _is_operator(target: Callable[..., Any] | str) -> bool:
    return getattr(target, "__module__", None) == "_operator"


def _is_arithmetic(target: Callable[..., Any] | str) -> bool:
    return getattr(target, "__module__", None) in ("_operator", "builtins", "math")


MATRICES = ("dense", "pooled")


class ProgramInputs:
    """The first nodes of a program, and every gather from requests to examples. An empty ``graph``
    gets placeholders (request_inputs, example_inputs, request_of_example); ``expand_at_entry``:
    whether request-scoped columns are expanded where they are taken. ``transforms``: path of the
    submodule that takes the dense columns of a scope."""

    def __init__(
        self, graph: fx.Graph, *, expand_at_entry: bool, transforms: Mapping[Scope, str]
    ) -> None:
        self._graph = graph
        self._expand_at_entry = expand_at_entry
        tensors = list[torch.Tensor]
        self._inputs = {scope: graph.placeholder(f"{scope}_inputs", tensors) for scope in SCOPES}
        self._request_of_example = graph.placeholder("request_of_example", torch.Tensor)
        self._matrices = {
            (name, scope): graph.call_function(operator.getitem, (self._inputs[scope], place))
            for place, name in enumerate(MATRICES)
            for scope in SCOPES
        }
        for scope, path in transforms.items():
            raw = self._matrices["dense", scope]
            self._matrices["dense", scope] = graph.call_module(path, (raw,))
        self._taken: dict[tuple[str, tuple[Columns, ...]], Value] = {}
        self._sequences: dict[Columns, tuple[fx.Node, fx.Node, fx.Node]] = {}
        self._expanded: dict[fx.Node, fx.Node] = {}

    def take(self, matrix: Literal["dense", "pooled"], columns: Collection[Columns]) -> Value:
        """Columns side by side, at least one, in the widest of their scopes."""
        key = matrix, tuple(columns)
        if key not in self._taken:
            self._taken[key] = self._take(matrix, columns)
        return self._taken[key]

    def padded(self, place: Columns, width: int | None, padding: float) -> Value:
        """A sequence as ``[R or B, width, dim]``; see ``JaggedTensor.to_padded_dense``."""
        values, lengths, offsets = self._sequence(place)
        arguments = (values, lengths, offsets, width, padding)
        return self._entered(self._graph.call_function(pad_jagged, arguments), place.scope)

    def lengths(self, place: Columns) -> Value:
        """How many vectors each list of a sequence has, int64 ``[R or B]``."""
        return self._entered(self._sequence(place)[1], place.scope)

    def expand(self, node: fx.Node) -> fx.Node:
        """Of a request-scoped tensor: each example's row."""
        if node not in self._expanded:
            self._expanded[node] = self._graph.call_function(
                torch.index_select, (node, 0, self._request_of_example)
            )
        return self._expanded[node]

    def _sequence(self, place: Columns) -> tuple[fx.Node, fx.Node, fx.Node]:
        """Its values, lengths and offsets."""
        if place not in self._sequences:
            first = len(MATRICES) + 2 * place.start
            values, offsets = (
                self._graph.call_function(operator.getitem, (self._inputs[place.scope], number))
                for number in (first, first + 1)
            )
            lengths = self._graph.call_function(offsets_to_lengths, (offsets,))
            self._sequences[place] = values, lengths, offsets
        return self._sequences[place]

    def _entered(self, node: fx.Node, scope: Scope) -> Value:
        """A whole input, expanded here if all are."""
        if scope == "request" and self._expand_at_entry:
            return Value(self.expand(node), "example")
        return Value(node, scope)

    def _take(self, matrix: str, columns: Collection[Columns]) -> Value:
        scopes = {each.scope for each in columns}
        expand = self._expand_at_entry or len(scopes) > 1
        parts = []
        for run in _runs(columns):
            part = self._graph.call_function(
                torch.narrow, (self._matrices[matrix, run.scope], 1, run.start, run.width)
            )
            parts.append(self.expand(part) if expand and run.scope == "request" else part)
        whole = parts[0] if len(parts) == 1 else self._graph.call_function(torch.cat, (parts, 1))
        return Value(whole, "request" if scopes == {"request"} and not expand else "example")


def dense_columns(schema: Schema) -> list[Columns]:
    """Where each dense input lies, in schema order."""
    seen: dict[Scope, int] = {"request": 0, "example": 0}
    columns = []
    for item in schema.dense:
        columns.append(Columns(item.scope, seen[item.scope], 1))
        seen[item.scope] += 1
    return columns


def _runs(columns: Collection[Columns]) -> list[Columns]:
    """Neighbours that also lie side by side, joined."""
    runs: list[Columns] = []
    for each in columns:
        last = runs[-1] if runs else None
        if last and last.scope == each.scope and last.start + last.width == each.start:
            runs[-1] = Columns(last.scope, last.start, last.width + each.width)
        else:
            runs.append(each)
    return runs
