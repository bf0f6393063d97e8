"""The dense program of a package: a module without its lookups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from embershard.export.embeddings import PooledLayout
from embershard.export.torchscript import run_program
from embershard.package.manifest import OutputSpec
from embershard.package.schema import Schema, Scope

__all__ = ["DenseProgram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProgram:
    """A module without its lookups."""

    script: Any
    """TorchScript: ``forward(request_inputs, example_inputs, request_of_example)``."""

    graph: fx.Graph
    """What it was compiled from."""

    schema: Schema
    layout: PooledLayout
    outputs: tuple[OutputSpec, ...]

    def run(
        self, dense: Tensor, pooled: Mapping[tuple[str, str], Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        """Run on inputs that were expanded to examples.

        Args:
            dense: float32 ``(B, inputs)`` in schema order.
            pooled: by embedding module and key, float32 ``(B, dim)``.
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
        for scope in ("request", "example"):
            columns = [i for i, item in enumerate(self.schema.dense) if item.scope == scope]
            vectors = [
                pooled[each.path, each.key]
                for each in self.layout.lookups
                if each.columns.scope == scope
            ]
            wide = torch.cat([dense.new_zeros(len(dense), 0), *vectors], dim=1)
            chosen = first if scope == "request" else torch.arange(len(dense))
            inputs[scope] = [dense[chosen][:, columns], wide[chosen]]
        return run_program(
            self.script, self.graph, inputs["request"], inputs["example"], request_of_example
        )
