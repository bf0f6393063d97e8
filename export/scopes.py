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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import fx

from embershard.errors import ExportError
from embershard.export.embeddings import EmbeddingModule, Layout, gives_sequences
from embershard.export.inputs import ProgramInputs, dense_columns
from embershard.export.tracing import line_of
from embershard.export.values import (
    Pooled,
    Sequence,
    Sequences,
    Value,
    is_in_place,
    result_of,
)
from embershard.modules import to_examples
from embershard.package.names import name_problem
from embershard.package.schema import Schema, Scope, SparseInput

__all__ = ["ScopedProgram", "split"]

Found: TypeAlias = Value | Pooled | Sequences | Sequence

# Of a KeyedTensor: gives its vectors by key again.
BY_KEY = "to_dict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedProgram:
    """A graph of (request_inputs, example_inputs, request_of_example) with named outputs."""

    graph: fx.Graph
    output_scopes: dict[str, Scope]


def split(
    traced: fx.Graph, schema: Schema, layout: Layout, modules: Mapping[str, EmbeddingModule]
) -> ScopedProgram:
    """Rewrite a traced ranker as the dense program of a package.

    Args:
        traced: of ``forward(dense, sparse)``, embedding modules being leaves.
        schema: inputs and their scopes.
        layout: where pooled vectors and sequences lie.
        modules: the embedding modules by path.

    Raises:
        ExportError: an operation that cannot be split or that mixes scopes; its line is named.
    """
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
        self._layout = layout
        self._modules = modules
        self._dense, self._sparse = (n for n in traced.nodes if n.op == "placeholder")
        self._dense_columns = dense_columns(schema)
        self._values: dict[fx.Node, Found] = {}
        self._graph = fx.Graph()
        marked = any(node.target is to_examples for node in traced.nodes)
        scopes = {item.scope for item in schema.dense} | {item.scope for item in schema.sparse}
        self._any_per_request = "request" in scopes
        self._inputs = ProgramInputs(self._graph, expand_at_entry=not marked and len(scopes) == 2)

    def run(self) -> ScopedProgram:
        for node in self._traced.nodes:
            if node.op == "output":
                return self._output(node)
            if node.op != "placeholder":
                self._values[node] = self._rewrite(node)
        raise AssertionError("a traced graph ends in an output")

    def _rewrite(self, node: fx.Node) -> Found:
        if node.op == "call_module" and node.target in self._modules:
            return self._lookup(node)
        source = node.all_input_nodes[0] if node.all_input_nodes else None
        if source is self._dense and (chosen := _columns_asked(node)) is not None:
            return self._dense_part(node, chosen)
        found = None if source is None else self._values.get(source)
        if isinstance(found, Pooled):
            return self._of_pooled(node, found)
        if isinstance(found, Sequences):
            return Sequence(found.path, self._key_asked(node, found.keys))
        if isinstance(found, Sequence):
            return self._of_sequence(node, found)
        if node.target is to_examples:
            return self._marked(node)
        return self._operation(node)

    def _lookup(self, node: fx.Node) -> Pooled | Sequences:
        if node.all_input_nodes != [self._sparse]:
            raise self._refusal(node, "expected an embedding module to take forward's sparse input")
        path = str(node.target)
        keys = tuple(self._modules[path].embedding_names())
        return (Sequences if gives_sequences(self._modules[path]) else Pooled)(path, keys)

    def _dense_part(self, node: fx.Node, chosen: slice | int | list[int]) -> Value:
        """Columns of dense, at the scope of those columns alone."""
        count = len(self._dense_columns)
        places = [chosen] if isinstance(chosen, int) else chosen
        if isinstance(places, slice):
            places = list(range(count)[places])
        if not places or not all(-count <= place < count for place in places):
            raise self._refusal(
                node, f"expected columns of the {count} dense inputs, got {chosen!r}"
            )
        value = self._inputs.take("dense", [self._dense_columns[place] for place in places])
        if isinstance(chosen, int):
            squeezed = self._graph.call_function(torch.squeeze, (value.node, 1))
            return Value(squeezed, value.scope)
        return value

    def _of_pooled(self, node: fx.Node, pooled: Pooled) -> Value | Pooled:
        """What is asked of a KeyedTensor: one vector, all vectors, or the same as a dict."""
        if node.target is operator.getitem:
            return self._vectors(pooled, (self._key_asked(node, pooled.keys),))
        if node.op == "call_method" and node.target == "values":
            return self._vectors(pooled, pooled.keys)
        if node.op == "call_method" and node.target == BY_KEY:
            return pooled
        raise self._refusal(node, "expected pooled['<key>'], pooled.values() or pooled.to_dict()")

    def _vectors(self, pooled: Pooled, keys: tuple[str, ...]) -> Value:
        return self._inputs.take("pooled", [self._layout.columns(pooled.path, key) for key in keys])

    def _key_asked(self, node: fx.Node, keys: tuple[str, ...]) -> str:
        if node.target is not operator.getitem:
            raise self._refusal(node, "expected sequences['<key>']")
        if node.args[1] not in keys:
            raise self._refusal(node, f"expected one of {', '.join(keys)}, got {node.args[1]!r}")
        return str(node.args[1])

    def _of_sequence(self, node: fx.Node, sequence: Sequence) -> Value:
        """What is asked of a JaggedTensor: it padded, or its lengths."""
        found = self._layout.sequence(sequence.path, sequence.key)
        place = found.place
        if node.op == "call_method" and node.target == "lengths":
            return self._inputs.lengths(place)
        if node.op != "call_method" or node.target != "to_padded_dense":
            raise self._refusal(node, "expected <sequence>.to_padded_dense() or .lengths()")
        given: Any = dict(zip(("desired_length", "padding_value"), node.args[1:], strict=False))
        given |= node.kwargs
        width, padding = given.get("desired_length"), given.get("padding_value", 0.0)
        if type(width) not in (int, type(None)) or type(padding) not in (int, float):
            raise self._refusal(
                node, "expected a desired_length and a padding_value that are known"
            )
        if width is None:
            self._check_bounded(node, found.input)
        return self._inputs.padded(place, width, float(padding))

    def _check_bounded(self, node: fx.Node, item: SparseInput) -> None:
        """Padded to the longest list of a batch, one long list makes all others as wide."""
        if not item.max_ids:
            raise self._refusal(
                node,
                f"feature {item.name!r}: expected a limit to its lists, which a server pads to the "
                "longest of a batch, got max_ids=0; give SparseInput max_ids, or to_padded_dense "
                "a width",
            )

    def _marked(self, node: fx.Node) -> Value:
        value = self._value(node.all_input_nodes[0], node)
        if value.kind != "tensor":
            raise self._refusal(node, "expected to_examples to take a tensor, got a size")
        if value.scope == "example" and self._any_per_request:
            raise self._refusal(
                node,
                "expected to_examples to take what depends on request-scoped inputs only, got what "
                "has a row for each example already; drop the mark, or give every input of it "
                "scope='request'",
            )
        if value.scope != "request":  # A marked model whose schema has no request scope.
            return value
        return Value(self._inputs.expand(value.node), "example")

    def _operation(self, node: fx.Node) -> Value:
        if is_in_place(node):
            raise self._refusal(node, "it writes into its operand; use what returns a new tensor")
        values = {source: self._value(source, node) for source in node.all_input_nodes}
        scopes = {value.scope for value in values.values() if value.scope is not None}
        if len(scopes) == 2:
            values = {source: self._to_example(value, node) for source, value in values.items()}
        scope: Scope | None = "example" if "example" in scopes else next(iter(scopes), None)
        arguments = fx.map_arg(node.args, lambda source: values[source].node)
        keywords = fx.map_arg(node.kwargs, lambda source: values[source].node)
        copy = self._graph.create_node(node.op, node.target, arguments, keywords, node.name)
        copy.stack_trace = node.stack_trace  # For what TorchScript may say of it.
        return result_of(node, copy, scope, [value.kind for value in values.values()])

    def _to_example(self, value: Value, node: fx.Node) -> Value:
        if value.scope != "request":
            return value
        if value.kind != "tensor":
            raise self._refusal(
                node,
                "it takes a size of request-scoped values together with example-scoped ones; "
                "take the size from an example-scoped tensor",
            )
        return Value(self._inputs.expand(value.node), "example")

    def _value(self, source: fx.Node, node: fx.Node) -> Value:
        if source is self._dense:
            return self._dense_part(node, slice(None))
        if source is self._sparse:
            raise self._refusal(
                node, "expected only embedding modules to use forward's sparse input"
            )
        value = self._values[source]
        if isinstance(value, Pooled):
            raise self._refusal(node, "expected tensors taken from the KeyedTensor first")
        if isinstance(value, Sequences | Sequence):
            raise self._refusal(
                node, "expected a sequence to be padded first: sequences['<key>'].to_padded_dense()"
            )
        return value

    def _output(self, node: fx.Node) -> ScopedProgram:
        given: Any = node.args[0]
        named = given if isinstance(given, dict) else {"score": given}
        scopes: dict[str, Scope] = {}
        outputs: dict[str, fx.Node] = {}
        for name, source in named.items():
            if not isinstance(name, str) or not isinstance(source, fx.Node):
                raise self._refusal(
                    node, f"forward: expected a tensor, or a dict from name to tensor, got {given}"
                )
            if problem := name_problem(name):
                raise self._refusal(node, f"output name: expected {problem}, got {name!r}")
            value = self._value(source, node)
            if value.kind != "tensor" or value.scope is None:
                raise self._refusal(
                    source, f"output {name!r}: expected a tensor that depends on an input"
                )
            outputs[name], scopes[name] = value.node, value.scope
        if not outputs:
            raise self._refusal(node, "forward: expected at least one output, got none")
        self._graph.output(outputs, type_expr=dict[str, torch.Tensor])
        self._graph.lint()
        return ScopedProgram(graph=self._graph, output_scopes=scopes)

    def _refusal(self, node: fx.Node, problem: str) -> ExportError:
        return ExportError(f"{line_of(node)}: cannot be exported: {problem}")


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
