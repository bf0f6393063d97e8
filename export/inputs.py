"""The inputs of a dense program: matrices and sequences of either scope, and what is taken of them.

<scope>_inputs    [dense, pooled, values of sequence 0, its offsets, values of sequence 1, ...]
"""

import operator
from collections.abc import Sequence
from typing import Literal

import torch
from torch import fx

from embershard.export.embeddings import Columns
from embershard.export.values import Value
from embershard.jagged.segments import offsets_to_lengths, pad_jagged
from embershard.package.schema import Schema, Scope

SCOPES: tuple[Scope, Scope] = ("request", "example")
MATRICES = ("dense", "pooled")


class ProgramInputs:
    """The first nodes of a program, and every gather from requests to examples. An empty ``graph``
    gets placeholders (request_inputs, example_inputs, request_of_example); ``expand_at_entry``:
    whether request-scoped columns are expanded where they are taken."""

    def __init__(self, graph: fx.Graph, *, expand_at_entry: bool) -> None:
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
        self._taken: dict[tuple[str, tuple[Columns, ...]], Value] = {}
        self._sequences: dict[Columns, tuple[fx.Node, fx.Node, fx.Node]] = {}
        self._expanded: dict[fx.Node, fx.Node] = {}

    def take(self, matrix: Literal["dense", "pooled"], columns: Sequence[Columns]) -> Value:
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

    def _take(self, matrix: str, columns: Sequence[Columns]) -> Value:
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


def _runs(columns: Sequence[Columns]) -> list[Columns]:
    """Neighbours that also lie side by side, joined."""
    runs: list[Columns] = []
    for each in columns:
        last = runs[-1] if runs else None
        if last and last.scope == each.scope and last.start + last.width == each.start:
            runs[-1] = Columns(last.scope, last.start, last.width + each.width)
        else:
            runs.append(each)
    return runs
