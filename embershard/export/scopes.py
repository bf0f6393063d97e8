"""Splits a traced ranker at its lookups, and finds the scope of every value.

    traced                              rewritten
    ──────────────────────────────      ───────────────────────────────────────────────
    dense, sparse                       request_inputs, example_inputs, request_of_example
    pooled = embeddings(sparse)         columns of request_inputs[1] and example_inputs[1]
    to_examples(x)                      index_select(x, 0, request_of_example)

Scopes spread from the inputs along the graph. A model without `to_examples` has all request-scoped
inputs expanded to examples at the start, which is correct for any model. In a model with
`to_examples` the operations before it run once per request. An operation with operands of both
scopes gets its request-scoped tensors expanded; a size cannot be expanded, and is refused.
"""

import dataclasses
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from embershard.errors import ExportError
from embershard.export.embeddings import EmbeddingModule, Layout
from embershard.export.inputs import (
    Feature,
    Features,
    NodeValue,
    Pooled,
    ProgramInputs,
    Regrouped,
    Sequence,
    Sequences,
    Value,
    dense_columns,
    in_place_remedy,
    is_in_place,
    operation_value,
)
from embershard.export.item_assignment import emit_assignment, is_shared, item_assigned
from embershard.export.lookup_values import PAD_FIRST, SPARSE_USE, LookupValues
from embershard.export.trace import line_of, refusal
from embershard.jagged.keyed_tensor import regroup_keyed
from embershard.modules import DenseTransforms, to_examples
from embershard.package.names import name_problem
from embershard.package.schema import Schema, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedProgram:
    """A graph of (request_inputs, example_inputs, request_of_example) with named outputs."""

    graph: fx.Graph
    output_scopes: dict[str, Scope]

    transforms: dict[str, DenseTransforms]
    """Submodules of the graph that the traced module does not have, by path."""


def split(
    traced: fx.Graph, schema: Schema, layout: Layout, modules: Mapping[str, EmbeddingModule]
) -> ScopedProgram:
    """Rewrite a trace of ``forward(dense, sparse)``, whose leaves are the embedding modules, as a
    dense program. Raises ExportError, with the line of an operation that cannot be split or mixes
    scopes."""
    return _Splitter(traced, schema, layout, modules).run()


class _Splitter:
    def __init__(
        self,
        traced: fx.Graph,
        schema: Schema,
        layout: Layout,
        modules: Mapping[str, EmbeddingModule],
    ) -> None:
        self._traced = traced
        self._modules = modules
        self._dense, self._sparse = (n for n in traced.nodes if n.op == "placeholder")
        self._dense_columns = dense_columns(schema)
        self._values: dict[fx.Node, NodeValue] = {
            self._sparse: Features(tuple(item.name for item in schema.sparse))
        }
        self._graph = fx.Graph()
        marked = any(node.target is to_examples for node in traced.nodes)
        scopes = {item.scope for item in schema.dense} | {item.scope for item in schema.sparse}
        self._any_per_request = "request" in scopes
        paths: dict[Scope, str] = {
            item.scope: f"embershard_{item.scope}_transforms"
            for item in schema.dense
            if item.transforms
        }
        self._transforms = {path: DenseTransforms(schema, scope) for scope, path in paths.items()}
        self._inputs = ProgramInputs(
            self._graph, expand_at_entry=not marked and len(scopes) == 2, transforms=paths
        )
        self._lookups = LookupValues(self._inputs, layout, modules, self._sparse)

    def run(self) -> ScopedProgram:
        for node in self._traced.nodes:
            if node.op == "output":
                return self._output(node)
            if node.op != "placeholder":
                self._values[node] = self._rewrite(node)
        raise AssertionError("a traced graph ends with an output")

    def _rewrite(self, node: fx.Node) -> NodeValue:
        if node.op == "call_module" and node.target in self._modules:
            return self._lookups.module_call(node)
        values = [self._values.get(source) for source in node.all_input_nodes]
        if node.target is regroup_keyed and any(isinstance(value, Pooled) for value in values):
            return self._lookups.regroup(node, values)
        source = node.all_input_nodes[0] if node.all_input_nodes else None
        if source is self._dense and (chosen := _dense_index(node)) is not None:
            return self._dense_part(node, chosen)
        value = None if source is None else self._values.get(source)
        if value is not None and not isinstance(value, Value):
            return self._lookups.use(node, value)
        if node.target is to_examples:
            return self._marked(node)
        return self._operation(node)

    def _dense_part(self, node: fx.Node, chosen: slice | int | list[int]) -> Value:
        count = len(self._dense_columns)
        places = [chosen] if isinstance(chosen, int) else chosen
        if isinstance(places, slice):
            places = list(range(count)[places])
        if not places or not all(-count <= place < count for place in places):
            raise refusal(node, f"expected columns of the {count} dense inputs, got {chosen!r}")
        value = self._inputs.take("dense", [self._dense_columns[place] for place in places])
        if isinstance(chosen, int):
            squeezed = self._graph.call_function(torch.squeeze, (value.node, 1))
            return Value(squeezed, value.scope)
        return value

    def _marked(self, node: fx.Node) -> Value:
        value = self._value(node.all_input_nodes[0], node)
        if value.kind != "tensor":
            raise refusal(node, "expected a tensor as argument of to_examples, got a size")
        if value.scope == "example" and self._any_per_request:
            raise refusal(
                node,
                "expected an argument of to_examples that depends on request-scoped inputs only, "
                f"got one that {self._row_for_each_example(node)}",
            )
        if value.scope != "request":  # The schema has no request-scoped inputs.
            return value
        return Value(self._inputs.expand(value.node), "example")

    def _row_for_each_example(self, marked: fx.Node) -> str:
        """Why the argument of `to_examples` has a row for each example, and what to write
        instead."""
        columns = [i for i, column in enumerate(self._dense_columns) if column.scope == "request"]
        mixed = 0 < len(columns) < len(self._dense_columns)
        for node in self._traced.nodes if mixed else ():
            uses_all = self._dense in node.all_input_nodes and _dense_index(node) is None
            if uses_all and marked in _users(node):
                return (
                    f"depends on all of dense at {line_of(node)}; write the operation only on "
                    f"dense[:, {columns}], the columns with scope='request'"
                )
        return (
            "has a row for each example already; remove to_examples, or declare all inputs of its "
            "argument with scope='request'"
        )

    def _operation(self, node: fx.Node) -> Value:
        if is_in_place(node):
            raise refusal(node, f"it writes into its operand; write {in_place_remedy(node)}")
        values = {source: self._value(source, node) for source in node.all_input_nodes}
        scopes = {value.scope for value in values.values() if value.scope is not None}
        if len(scopes) == 2:
            values = {source: self._to_example(value, node) for source, value in values.items()}
        scope: Scope | None = "example" if "example" in scopes else next(iter(scopes), None)
        arguments = fx.map_arg(node.args, lambda source: values[source].node)
        keywords = fx.map_arg(node.kwargs, lambda source: values[source].node)
        if node.target is item_assigned:
            copy = self._assigned(node, arguments, values)
        else:
            copy = self._graph.create_node(node.op, node.target, arguments, keywords, node.name)
        copy.stack_trace = node.stack_trace  # For errors of TorchScript.
        return operation_value(node, copy, scope, [value.kind for value in values.values()])

    def _assigned(self, node: fx.Node, arguments: Any, values: Mapping[fx.Node, Value]) -> fx.Node:
        if is_shared(node):
            raise refusal(
                node,
                "expected an item assignment to a tensor without other views that are used later, "
                "got one with such a view; write y = y.clone() before it",
            )
        tensors = {value.node for value in values.values() if value.kind == "tensor"}
        tensor, index, value = arguments
        assigned = emit_assignment(self._graph, tensor, index, value, tensors)
        if assigned is None:
            raise refusal(
                node,
                "expected the index of an item assignment to hold only numbers and slices, or only "
                "tensors, got a list, or tensors mixed with others; write torch.where or torch.cat",
            )
        return assigned

    def _to_example(self, value: Value, node: fx.Node) -> Value:
        if value.scope != "request":
            return value
        if value.kind != "tensor":
            raise refusal(
                node,
                "it combines a size of request-scoped values with example-scoped values; write the "
                "size of an example-scoped tensor",
            )
        return Value(self._inputs.expand(value.node), "example")

    def _value(self, source: fx.Node, node: fx.Node) -> Value:
        if source is self._dense:
            return self._dense_part(node, slice(None))
        value = self._values[source]
        if isinstance(value, Features | Feature):
            raise refusal(node, SPARSE_USE)
        if isinstance(value, Pooled | Regrouped):
            raise refusal(
                node, "expected a tensor, got a KeyedTensor or a list; write pooled['<key>']"
            )
        if isinstance(value, Sequences | Sequence):
            key = value.key if isinstance(value, Sequence) else "<key>"
            raise refusal(
                node,
                "expected a sequence to be padded first; "
                + PAD_FIRST.format(sequence=f"sequences[{key!r}]"),
            )
        return value

    def _output(self, node: fx.Node) -> ScopedProgram:
        result: Any = node.args[0]
        if problem := _form_problem(result):
            raise ExportError(
                f"forward: expected a tensor, or a dict from name to tensor, got {problem}"
            )
        named = result if isinstance(result, dict) else {"score": result}
        scopes: dict[str, Scope] = {}
        outputs: dict[str, fx.Node] = {}
        for name, source in named.items():
            if not isinstance(name, str) or not isinstance(source, fx.Node):
                raise refusal(
                    node,
                    f"forward: expected a tensor, or a dict from name to tensor, got {result}"
                    f"{_output_remedy(name, source)}",
                )
            if problem := name_problem(name):
                raise refusal(node, f"output name: expected {problem}, got {name!r}")
            value = self._value(source, node)
            if value.kind != "tensor" or value.scope is None:
                raise refusal(
                    source,
                    f"output {name!r}: expected a tensor that depends on an input, got another "
                    "value",
                )
            outputs[name], scopes[name] = value.node, value.scope
        if not outputs:
            raise refusal(node, "forward: expected at least one output, got none")
        self._graph.output(outputs, type_expr=dict[str, torch.Tensor])
        self._graph.lint()
        return ScopedProgram(graph=self._graph, output_scopes=scopes, transforms=self._transforms)


def _users(node: fx.Node) -> set[fx.Node]:
    """A node, and all nodes that depend on it."""
    users, waiting = {node}, [node]
    while waiting:
        waiting += [user for user in waiting.pop().users if user not in users]
        users.update(waiting)
    return users


def _form_problem(result: Any) -> str | None:
    """A description of forward's result and advice, if it is neither a tensor nor a dict."""
    if isinstance(result, tuple | list):
        kind = "tuple" if isinstance(result, tuple) else "list"
        return f"a {kind} of {len(result)} values; write return {{'score': score, ...}}"
    if isinstance(result, fx.Node) and dataclasses.is_dataclass(result.target):
        kind = getattr(result.target, "__name__", "dataclass")
        fields = dataclasses.fields(result.target)
        named = ", ".join(f"{field.name!r}: {field.name}" for field in fields)
        return f"the dataclass {kind}; write return {{{named}}}"
    return None


def _output_remedy(name: object, source: object) -> str:
    if source is None:
        return f"; leave {name!r} out of the dict"
    if isinstance(source, dict):
        named = ", ".join(f"'{name}_{key}': {key}" for key in source)
        return f"; write one dict: {{{named}}}"
    return ""


def _dense_index(node: fx.Node) -> slice | int | list[int] | None:
    """The columns in ``dense[:, columns]``. None if they are not constants, or for other nodes."""
    if node.target is not operator.getitem or not isinstance(node.args[1], tuple):
        return None
    index: Any = node.args[1]
    if len(index) != 2 or index[0] != slice(None):
        return None
    columns = index[1]
    if type(columns) is int:
        return columns
    if isinstance(columns, list) and all(type(place) is int for place in columns):
        return list(columns)
    if isinstance(columns, slice):
        bounds = (columns.start, columns.stop, columns.step)
        return columns if all(isinstance(bound, int | None) for bound in bounds) else None
    return None
