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
    Found,
    Pooled,
    ProgramInputs,
    Regrouped,
    Sequence,
    Sequences,
    Value,
    dense_columns,
    is_in_place,
    result_of,
    without_writing,
)
from embershard.export.item_assignment import emit_assignment, is_shared, item_assigned
from embershard.export.lookup_values import OF_SPARSE, PAD_FIRST, LookupValues
from embershard.export.tracing import line_of, refusal
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
    """Submodules that the graph calls and the traced module does not have, by path."""


def split(
    traced: fx.Graph, schema: Schema, layout: Layout, modules: Mapping[str, EmbeddingModule]
) -> ScopedProgram:
    """Rewrite a trace of ``forward(dense, sparse)``, embedding modules being leaves, as the dense
    program of a package. `ExportError`: an operation that cannot be split or that mixes scopes; its
    line is named."""
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
        self._values: dict[fx.Node, Found] = {
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
        raise AssertionError("a traced graph ends in an output")

    def _rewrite(self, node: fx.Node) -> Found:
        if node.op == "call_module" and node.target in self._modules:
            return self._lookups.looked_up(node)
        sources = [self._values.get(source) for source in node.all_input_nodes]
        if node.target is regroup_keyed and any(isinstance(each, Pooled) for each in sources):
            return self._lookups.regrouped(node, sources)
        source = node.all_input_nodes[0] if node.all_input_nodes else None
        if source is self._dense and (chosen := _columns_asked(node)) is not None:
            return self._dense_part(node, chosen)
        found = None if source is None else self._values.get(source)
        if found is not None and not isinstance(found, Value):
            return self._lookups.asked(node, found)
        if node.target is to_examples:
            return self._marked(node)
        return self._operation(node)

    def _dense_part(self, node: fx.Node, chosen: slice | int | list[int]) -> Value:
        """Columns of dense, at the scope of those columns alone."""
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
            raise refusal(node, "expected to_examples to take a tensor, got a size")
        if value.scope == "example" and self._any_per_request:
            raise refusal(
                node,
                "expected to_examples to take what depends on request-scoped inputs only, got what "
                f"{self._row_for_each_example(node)}",
            )
        if value.scope != "request":  # A marked model whose schema has no request scope.
            return value
        return Value(self._inputs.expand(value.node), "example")

    def _row_for_each_example(self, marked: fx.Node) -> str:
        """Why what is marked has a row for each example, and what to write instead."""
        columns = [i for i, column in enumerate(self._dense_columns) if column.scope == "request"]
        mixed = 0 < len(columns) < len(self._dense_columns)
        for node in self._traced.nodes if mixed else ():
            takes_all = self._dense in node.all_input_nodes and _columns_asked(node) is None
            if takes_all and marked in _users(node):
                return (
                    f"takes all of dense at {line_of(node)}; write the operation on "
                    f"dense[:, {columns}], the columns of scope='request', alone"
                )
        return (
            "has a row for each example already; drop the mark, or give every input of it "
            "scope='request'"
        )

    def _operation(self, node: fx.Node) -> Value:
        if is_in_place(node):
            raise refusal(node, f"it writes into its operand; write {without_writing(node)}")
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
        copy.stack_trace = node.stack_trace  # For what TorchScript may say of it.
        return result_of(node, copy, scope, [value.kind for value in values.values()])

    def _assigned(self, node: fx.Node, arguments: Any, values: Mapping[fx.Node, Value]) -> fx.Node:
        if is_shared(node):
            raise refusal(
                node,
                "expected an item assignment to a tensor of which no other view is used later; "
                "write y = y.clone() before it",
            )
        tensors = {value.node for value in values.values() if value.kind == "tensor"}
        tensor, index, value = arguments
        assigned = emit_assignment(self._graph, tensor, index, value, tensors)
        if assigned is None:
            raise refusal(
                node,
                "expected the index of an item assignment to hold numbers and slices, or tensors "
                "alone; write torch.where or torch.cat",
            )
        return assigned

    def _to_example(self, value: Value, node: fx.Node) -> Value:
        if value.scope != "request":
            return value
        if value.kind != "tensor":
            raise refusal(
                node,
                "it takes a size of request-scoped values together with example-scoped ones; "
                "take the size from an example-scoped tensor",
            )
        return Value(self._inputs.expand(value.node), "example")

    def _value(self, source: fx.Node, node: fx.Node) -> Value:
        if source is self._dense:
            return self._dense_part(node, slice(None))
        value = self._values[source]
        if isinstance(value, Features | Feature):
            raise refusal(node, OF_SPARSE)
        if isinstance(value, Pooled | Regrouped):
            raise refusal(node, "expected tensors taken from the KeyedTensor first")
        if isinstance(value, Sequences | Sequence):
            key = value.key if isinstance(value, Sequence) else "<key>"
            raise refusal(
                node,
                "expected a sequence to be padded first; "
                + PAD_FIRST.format(sequence=f"sequences[{key!r}]"),
            )
        return value

    def _output(self, node: fx.Node) -> ScopedProgram:
        given: Any = node.args[0]
        if problem := _form_problem(given):
            raise ExportError(
                f"forward: expected a tensor, or a dict from name to tensor, got {problem}"
            )
        named = given if isinstance(given, dict) else {"score": given}
        scopes: dict[str, Scope] = {}
        outputs: dict[str, fx.Node] = {}
        for name, source in named.items():
            if not isinstance(name, str) or not isinstance(source, fx.Node):
                raise refusal(
                    node,
                    f"forward: expected a tensor, or a dict from name to tensor, got {given}"
                    f"{_output_remedy(name, source)}",
                )
            if problem := name_problem(name):
                raise refusal(node, f"output name: expected {problem}, got {name!r}")
            value = self._value(source, node)
            if value.kind != "tensor" or value.scope is None:
                raise refusal(
                    source, f"output {name!r}: expected a tensor that depends on an input"
                )
            outputs[name], scopes[name] = value.node, value.scope
        if not outputs:
            raise refusal(node, "forward: expected at least one output, got none")
        self._graph.output(outputs, type_expr=dict[str, torch.Tensor])
        self._graph.lint()
        return ScopedProgram(graph=self._graph, output_scopes=scopes, transforms=self._transforms)


def _users(node: fx.Node) -> set[fx.Node]:
    """All nodes that depend on one, itself included."""
    users, waiting = {node}, [node]
    while waiting:
        waiting += [user for user in waiting.pop().users if user not in users]
        users.update(waiting)
    return users


def _form_problem(given: Any) -> str | None:
    """Of what a forward returns as a whole: what it is in place of a tensor or a dict."""
    if isinstance(given, tuple | list):
        kind = "tuple" if isinstance(given, tuple) else "list"
        return f"a {kind} of {len(given)} values; write return {{'score': score, ...}}"
    if isinstance(given, fx.Node) and dataclasses.is_dataclass(given.target):
        kind = getattr(given.target, "__name__", "dataclass")
        fields = dataclasses.fields(given.target)
        named = ", ".join(f"{each.name!r}: {each.name}" for each in fields)
        return f"the dataclass {kind}; write return {{{named}}}"
    return None


def _output_remedy(name: object, source: object) -> str:
    """What to write in place of an output that is no tensor."""
    if source is None:
        return f"; leave {name!r} out of the dict"
    if isinstance(source, dict):
        named = ", ".join(f"'{name}_{each}': {each}" for each in source)
        return f"; write one dict: {{{named}}}"
    return ""


def _columns_asked(node: fx.Node) -> slice | int | list[int] | None:
    """Of ``dense[:, columns]``: its columns, where they are known numbers."""
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
