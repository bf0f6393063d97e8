"""Splits a traced ranker at its lookups and gives every value its scope.

    traced                              rewritten
    ──────────────────────────────      ───────────────────────────────────────────────
    dense, sparse                       request_inputs, example_inputs, request_of_example
    pooled = embeddings(sparse)         columns of request_inputs[1] and example_inputs[1]
    to_examples(x)                      index_select(x, 0, request_of_example)

Scopes spread from the inputs along the graph. Without a single `to_examples` every
request-scoped input is expanded where it enters, which is right for any model. With one, what
comes before the mark runs once per request; an operation that takes values of both scopes gets
its request-scoped tensors expanded, and is refused where that cannot help (a size).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import fx

from embershard.errors import ExportError
from embershard.export.embeddings import Columns, PooledLayout
from embershard.export.tracing import line_of
from embershard.modules import to_examples
from embershard.package.schema import Schema, Scope

__all__ = ["ScopedProgram", "split"]

# What asks a tensor for something that is the same in either scope.
PLAIN_ATTRIBUTES = frozenset({"device", "dtype", "ndim", "dim", "ndimension"})
# What asks a KeyedTensor for its vectors one by one, by key.
BY_KEY = frozenset({"to_dict"})


@dataclass(frozen=True, slots=True)
class Value:
    """What a node of the traced graph became."""

    node: fx.Node

    scope: Scope | None
    """None: the same whatever R and B are, as parameters are."""

    kind: Literal["tensor", "shape", "size", "plain"] = "tensor"
    """shape: all sizes of a tensor. size: its first. plain: anything else but a tensor."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """The KeyedTensor that an embedding module gives."""

    path: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedProgram:
    """A graph of (request_inputs, example_inputs, request_of_example) with named outputs."""

    graph: fx.Graph
    output_scopes: dict[str, Scope]


def split(
    traced: fx.Graph, schema: Schema, layout: PooledLayout, pooled_keys: dict[str, tuple[str, ...]]
) -> ScopedProgram:
    """Rewrite a traced ranker as the dense program of a package.

    Args:
        traced: of ``forward(dense, sparse)``, embedding modules being leaves.
        schema: inputs and their scopes.
        layout: where pooled vectors lie.
        pooled_keys: output keys of each embedding module, by path.

    Raises:
        ExportError: an operation that cannot be split or that mixes scopes; its line is named.
    """
    return _Splitter(traced, schema, layout, pooled_keys).run()


class _Splitter:
    def __init__(
        self,
        traced: fx.Graph,
        schema: Schema,
        layout: PooledLayout,
        pooled_keys: dict[str, tuple[str, ...]],
    ) -> None:
        self._traced = traced
        self._schema = schema
        self._layout = layout
        self._pooled_keys = pooled_keys
        self._dense, self._sparse = (n for n in traced.nodes if n.op == "placeholder")
        self._values: dict[fx.Node, Value | Pooled] = {}
        self._expanded: dict[fx.Node, fx.Node] = {}
        self._graph = fx.Graph()
        scopes = {item.scope for item in schema.dense} | {item.scope for item in schema.sparse}
        marked = any(node.target is to_examples for node in traced.nodes)
        self._expand_at_entry = not marked and len(scopes) == 2
        self._make_inputs()

    def run(self) -> ScopedProgram:
        for node in self._traced.nodes:
            if node.op == "output":
                return self._output(node)
            if node.op != "placeholder":
                self._values[node] = self._rewrite(node)
        raise AssertionError("a traced graph ends in an output")

    # Inputs.

    def _make_inputs(self) -> None:
        tensors = list[torch.Tensor]
        inputs: dict[Scope, fx.Node] = {}
        for scope in ("request", "example"):
            inputs[scope] = self._graph.placeholder(f"{scope}_inputs", tensors)
        self._request_of_example = self._graph.placeholder("request_of_example", torch.Tensor)
        self._dense_matrix, self._pooled_matrix = (
            {
                scope: self._graph.call_function(operator.getitem, (inputs[scope], place))
                for scope in inputs
            }
            for place in (0, 1)
        )

    def _enter(self, matrix: dict[Scope, fx.Node], columns: list[Columns]) -> Value:
        """Columns of the inputs, side by side, in the widest of their scopes."""
        scopes = {each.scope for each in columns}
        mixed = len(scopes) > 1
        parts = []
        for run in _runs(columns):
            part = self._narrow(matrix[run.scope], run.start, run.width)
            if run.scope == "request" and (mixed or self._expand_at_entry):
                part = self._expand(part)
            parts.append(part)
        whole = parts[0] if len(parts) == 1 else self._graph.call_function(torch.cat, (parts, 1))
        request = scopes == {"request"} and not self._expand_at_entry
        return Value(whole, "request" if request else "example")

    def _narrow(self, matrix: fx.Node, start: int, width: int) -> fx.Node:
        return self._graph.call_function(torch.narrow, (matrix, 1, start, width))

    def _expand(self, node: fx.Node) -> fx.Node:
        if node not in self._expanded:
            self._expanded[node] = self._graph.call_function(
                torch.index_select, (node, 0, self._request_of_example)
            )
        return self._expanded[node]

    def _dense_columns(self, node: fx.Node, chosen: slice | int) -> Value:
        seen: dict[Scope, int] = {"request": 0, "example": 0}
        columns = []
        for item in self._schema.dense:
            columns.append(Columns(item.scope, seen[item.scope], 1))
            seen[item.scope] += 1
        if isinstance(chosen, int):
            if not -len(columns) <= chosen < len(columns):
                raise self._refusal(node, f"expected a dense column below {len(columns)}")
            value = self._enter(self._dense_matrix, [columns[chosen]])
            squeezed = self._graph.call_function(torch.squeeze, (value.node, 1))
            return Value(squeezed, value.scope)
        picked = columns[chosen]
        if not picked:
            raise self._refusal(node, "expected at least one dense input")
        return self._enter(self._dense_matrix, picked)

    # Nodes.

    def _rewrite(self, node: fx.Node) -> Value | Pooled:
        if node.op == "call_module" and node.target in self._pooled_keys:
            return self._lookup(node)
        source = node.all_input_nodes[0] if node.all_input_nodes else None
        if source is self._dense and (columns := _dense_slice(node)) is not None:
            return self._dense_columns(node, columns)
        if source is not None and isinstance(pooled := self._values.get(source), Pooled):
            return self._of_pooled(node, pooled)
        if node.target is to_examples:
            value = self._value(node.all_input_nodes[0], node)
            return Value(self._expand(value.node), "example") if value.scope == "request" else value
        return self._operation(node)

    def _lookup(self, node: fx.Node) -> Pooled:
        if node.all_input_nodes != [self._sparse]:
            raise self._refusal(node, "expected an embedding module to take forward's sparse input")
        path = str(node.target)
        return Pooled(path, self._pooled_keys[path])

    def _of_pooled(self, node: fx.Node, pooled: Pooled) -> Value | Pooled:
        """What is asked of a KeyedTensor: one vector, all vectors, or the same as a dict."""
        if node.target is operator.getitem and node.args[1] in pooled.keys:
            return self._vectors(pooled, [str(node.args[1])])
        if node.op == "call_method" and node.target == "values":
            return self._vectors(pooled, pooled.keys)
        if node.op == "call_method" and node.target in BY_KEY:
            return pooled
        raise self._refusal(node, "expected pooled['<key>'], pooled.values() or pooled.to_dict()")

    def _vectors(self, pooled: Pooled, keys: Iterable[str]) -> Value:
        columns = [self._layout.columns(pooled.path, key) for key in keys]
        return self._enter(self._pooled_matrix, columns)

    def _operation(self, node: fx.Node) -> Value:
        values = {source: self._value(source, node) for source in node.all_input_nodes}
        scopes = {value.scope for value in values.values() if value.scope is not None}
        if len(scopes) == 2:
            values = {source: self._to_example(value, node) for source, value in values.items()}
        scope: Scope | None = "example" if "example" in scopes else next(iter(scopes), None)
        arguments = fx.map_arg(node.args, lambda source: values[source].node)
        keywords = fx.map_arg(node.kwargs, lambda source: values[source].node)
        copy = self._graph.create_node(node.op, node.target, arguments, keywords, node.name)
        return _result(node, copy, scope, [value.kind for value in values.values()])

    def _to_example(self, value: Value, node: fx.Node) -> Value:
        if value.scope != "request":
            return value
        if value.kind != "tensor":
            raise self._refusal(
                node,
                "it takes a size of request-scoped values together with example-scoped ones; "
                "take the size from an example-scoped tensor",
            )
        return Value(self._expand(value.node), "example")

    def _value(self, source: fx.Node, node: fx.Node) -> Value:
        if source is self._dense:
            return self._dense_columns(node, slice(None))
        if source is self._sparse:
            raise self._refusal(
                node, "expected only embedding modules to use forward's sparse input"
            )
        value = self._values[source]
        if isinstance(value, Pooled):
            raise self._refusal(node, "expected tensors taken from the KeyedTensor first")
        return value

    def _output(self, node: fx.Node) -> ScopedProgram:
        given = node.args[0]
        named = given if isinstance(given, dict) else {"score": given}
        scopes: dict[str, Scope] = {}
        outputs: dict[str, fx.Node] = {}
        for name, source in named.items():
            if not isinstance(name, str) or not isinstance(source, fx.Node):
                raise self._refusal(node, "expected a tensor, or a dict from name to tensor")
            value = self._value(source, node)
            if value.kind != "tensor" or value.scope is None:
                raise self._refusal(
                    node, f"output {name!r}: expected a tensor that depends on an input"
                )
            outputs[name], scopes[name] = value.node, value.scope
        if not outputs:
            raise self._refusal(node, "expected at least one output")
        self._graph.output(outputs, type_expr=dict[str, torch.Tensor])
        self._graph.lint()
        return ScopedProgram(graph=self._graph, output_scopes=scopes)

    def _refusal(self, node: fx.Node, problem: str) -> ExportError:
        return ExportError(f"{line_of(node)}: cannot be exported: {problem}")


def _runs(columns: list[Columns]) -> list[Columns]:
    """Neighbours that also lie side by side, joined."""
    runs: list[Columns] = []
    for each in columns:
        last = runs[-1] if runs else None
        if last and last.scope == each.scope and last.start + last.width == each.start:
            runs[-1] = Columns(last.scope, last.start, last.width + each.width)
        else:
            runs.append(each)
    return runs


def _dense_slice(node: fx.Node) -> slice | int | None:
    """The columns that ``dense[:, columns]`` takes, where they are constants of step 1."""
    if node.target is not operator.getitem or not isinstance(node.args[1], tuple):
        return None
    index = node.args[1]
    if len(index) != 2 or index[0] != slice(None):
        return None
    columns = index[1]
    if isinstance(columns, int):
        return columns
    if isinstance(columns, slice) and columns.step in (None, 1):
        bounds = (columns.start, columns.stop)
        return columns if all(isinstance(b, int | None) for b in bounds) else None
    return None


def _result(node: fx.Node, copy: fx.Node, scope: Scope | None, kinds: list[str]) -> Value:
    """What an operation gives, by what it is asked of."""
    asked = node.args[1] if node.target is getattr and len(node.args) > 1 else node.target
    if asked in PLAIN_ATTRIBUTES:
        return Value(copy, None, "plain")
    if asked == "shape" or (asked == "size" and len(node.args) == 1 and not node.kwargs):
        return Value(copy, scope, "shape")
    if asked == "size":
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        return Value(copy, scope, "size") if dim == 0 else Value(copy, None, "plain")
    if node.target is operator.getitem and kinds == ["shape"]:
        return _item_of_shape(node, copy, scope)
    if "tensor" not in kinds and _is_arithmetic(node.target):
        return Value(copy, scope, "size" if scope else "plain")
    return Value(copy, scope)


def _item_of_shape(node: fx.Node, copy: fx.Node, scope: Scope | None) -> Value:
    index: Any = node.args[1]
    if isinstance(index, slice):
        beyond_first = isinstance(index.start, int) and index.start > 0
        return Value(copy, None, "plain") if beyond_first else Value(copy, scope, "shape")
    return Value(copy, scope, "size") if index == 0 else Value(copy, None, "plain")


def _is_arithmetic(target: Callable[..., Any] | str) -> bool:
    return getattr(target, "__module__", None) in ("_operator", "builtins", "math")
