"""The dense program of a package: a module without its lookups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from embershard.export.embeddings import Layout
from embershard.export.torchscript import run_program
from embershard.jagged import JaggedTensor
from embershard.package.manifest import DenseDtype, OutputSpec
from embershard.package.schema import Schema, Scope

SCOPES: tuple[Scope, Scope] = ("request", "example")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """What the lookups gave B examples, by embedding module and key."""

    pooled: Mapping[tuple[str, str], Tensor]
    """float32 ``(B, dim)``."""

    sequences: Mapping[tuple[str, str], JaggedTensor]
    """B lists of float32 vectors ``(total, dim)``."""

    def take(self, examples: Tensor) -> LookedUp:
        """Of some examples: int64 positions."""
        return LookedUp(
            pooled={key: rows[examples] for key, rows in self.pooled.items()},
            sequences={key: take_lists(lists, examples) for key, lists in self.sequences.items()},
        )


def take_lists(lists: JaggedTensor, places: Tensor) -> JaggedTensor:
    """The lists at ``places``, int64 ``(M,)``, in that order; repeats are allowed."""
    found = lists.to_dense()
    chosen = [found[place] for place in places.tolist()]
    return JaggedTensor(torch.cat([lists.values()[:0], *chosen]), lengths=lists.lengths()[places])


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProgram:
    """A module without its lookups."""

    script: Any
    """TorchScript: ``forward(request_inputs, example_inputs, request_of_example)``."""

    graph: fx.Graph
    """What it was compiled from."""

    schema: Schema
    layout: Layout
    outputs: tuple[OutputSpec, ...]

    float32: DenseProgram | None = None
    """The same without the rounding of its linear layers to bfloat16. None: it has none."""

    @property
    def dtype(self) -> DenseDtype:
        """What its linear layers take."""
        return "bfloat16" if self.float32 else "float32"

    def run(
        self, dense: Tensor, looked_up: LookedUp, request_of_example: Tensor
    ) -> dict[str, Tensor]:
        """Run on inputs that were expanded to examples.

        Args:
            dense: float32 ``(B, inputs)`` in schema order.
            looked_up: what the lookups gave.
            request_of_example: int64 ``(B,)``, ascending from 0, no number left out. Of each
                request's examples the first gives its request-scoped inputs.

        Returns:
            Outputs by name, float32 ``(B or R, ...)``.

        Raises:
            ExportError: an operation fails; it is named.
        """
        first = torch.searchsorted(
            request_of_example, torch.arange(int(request_of_example[-1]) + 1)
        )
        inputs: dict[Scope, list[Tensor]] = {}
        places = {"request": first, "example": torch.arange(len(dense))}
        for scope in SCOPES:
            given = looked_up.take(places[scope])
            columns = [i for i, item in enumerate(self.schema.dense) if item.scope == scope]
            vectors = [
                given.pooled[each.path, each.key]
                for each in self.layout.pooled
                if each.columns.scope == scope
            ]
            wide = torch.cat([dense.new_zeros(len(places[scope]), 0), *vectors], dim=1)
            inputs[scope] = [dense[places[scope]][:, columns], wide]
            for each in self.layout.sequences:
                if each.columns.scope == scope:
                    lists = given.sequences[each.path, each.key]
                    inputs[scope] += [lists.values(), lists.offsets()]
        return run_program(
            self.script, self.graph, inputs["request"], inputs["example"], request_of_example
        )
