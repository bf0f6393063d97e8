"""The inputs of a dense program, and the kinds of values in a traced graph.

A program has a list of inputs for each scope:

<scope>_inputs    [dense, pooled, values of sequence 0, its offsets, values of sequence 1, ...]
"""

import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import fx

from embershard.export.embeddings import SCOPES, Columns
from embershard.export.trace import target_name
from embershard.jagged.segments import offsets_to_lengths, pad_jagged
from embershard.package.schema import Schema, Scope

Kind: TypeAlias = Literal["tensor", "shape", "size", "plain"]
"""shape: all sizes of a tensor. size: a number that depends on the number of rows. plain: anything
else that is no tensor."""

PLAIN_ATTRIBUTES = frozenset({"device", "dtype", "ndim", "dim", "ndimension"})
"""Attributes and methods of tensors whose results are the same in both scopes."""


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a node: its copy in the rewritten graph, and the scope of its rows."""

    node: fx.Node

    scope: Scope | None
    """If None, the value does not depend on the request, like a parameter."""

    kind: Kind = "tensor"


@dataclass(frozen=True, slots=True)
class Pooled:
    """The KeyedTensor that an embedding module returns."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequences:
    """The dict from key to JaggedTensor that an embedding module without pooling returns."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Regrouped:
    groups: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Features:
    """The KeyedJaggedTensor that is forward's sparse input."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    key: str


NodeValue: TypeAlias = Value | Pooled | Sequences | Sequence | Regrouped | Features | Feature


def operation_value(node: fx.Node, copy: fx.Node, scope: Scope | None, kinds: list[Kind]) -> Value:
    """The value of an operation, from the scope and kinds of its operands."""
    name = _operation_name(node)
    if name in PLAIN_ATTRIBUTES:
        return Value(copy, None, "plain")
    if name == "shape" or (name == "size" and len(node.args) == 1 and not node.kwargs):
        return Value(copy, scope, "shape")
    if name == "size":
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        return Value(copy, scope, "size") if dim == 0 else Value(copy, None, "plain")
    if name in ("numel", "nelement", len):
        return Value(copy, scope, "size" if scope else "plain")
    if name == "getitem" and kinds == ["shape"]:
        return _item_of_shape(node, copy, scope)
    if "tensor" not in kinds and _is_arithmetic(node.target):
        return Value(copy, scope, "size" if scope else "plain")
    return Value(copy, scope)


def is_in_place(node: fx.Node) -> bool:
    """True if a node writes into an operand, such as ``x.add_(y)`` or ``operator.iadd(x, y)``."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = target_name(node)
    if _is_operator(node.target):
        return name in fx.graph.inplace_methods
    if any(node.kwargs.get(option) is not None for option in ("out", "max_norm")):
        return True
    return name.endswith("_") and not name.endswith("__")


def in_place_remedy(node: fx.Node) -> str:
    if node.kwargs.get("out") is not None:
        return "the call without out=, and use its result"
    if node.kwargs.get("max_norm") is not None:
        return "nn.Embedding(..., max_norm=...), whose rows are scaled once"
    return f"{target_name(node).strip('_')}, and use the new tensor that it returns"


def _operation_name(node: fx.Node) -> object:
    """The name of an attribute, method or operator, such as "shape" for ``x.shape`` and "size" for
    ``x.size()``. Other functions stand for themselves."""
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
    """Adds the nodes that read a program's inputs, and that expand values of requests to examples.
    ``graph`` is empty and gets the placeholders. With ``expand_at_entry``, all request-scoped
    inputs are expanded. ``transforms`` has the path of the submodule that transforms dense columns,
    by scope."""

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
        """One or more columns as one matrix. Its scope is "example" if any column has it."""
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
        return self._entered(self._sequence(place)[1], place.scope)

    def expand(self, node: fx.Node) -> fx.Node:
        """Repeat the rows of a request-scoped tensor for the examples of each request."""
        if node not in self._expanded:
            self._expanded[node] = self._graph.call_function(
                torch.index_select, (node, 0, self._request_of_example)
            )
        return self._expanded[node]

    def _sequence(self, place: Columns) -> tuple[fx.Node, fx.Node, fx.Node]:
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
        if scope == "request" and self._expand_at_entry:
            return Value(self.expand(node), "example")
        return Value(node, scope)

    def _take(self, matrix: str, columns: Collection[Columns]) -> Value:
        scopes = {column.scope for column in columns}
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
    """Location of each dense input, in schema order."""
    seen: dict[Scope, int] = {"request": 0, "example": 0}
    columns = []
    for item in schema.dense:
        columns.append(Columns(item.scope, seen[item.scope], 1))
        seen[item.scope] += 1
    return columns


def _runs(columns: Collection[Columns]) -> list[Columns]:
    """Join columns that are neighbours in ``columns`` and in the matrix of their scope."""
    runs: list[Columns] = []
    for column in columns:
        last = runs[-1] if runs else None
        if last and last.scope == column.scope and last.start + last.width == column.start:
            runs[-1] = Columns(last.scope, last.start, last.width + column.width)
        else:
            runs.append(column)
    return runs
