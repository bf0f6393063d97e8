"""The dense program of a package: made from a module, run, and checked against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from embershard.errors import ExportError
from embershard.export.embeddings import (
    EMBEDDING_MODULES,
    EmbeddingModule,
    PooledLayout,
    lay_out,
)
from embershard.export.scopes import split
from embershard.export.torchscript import compile_program
from embershard.export.tracing import trace
from embershard.jagged import KeyedJaggedTensor
from embershard.package.manifest import OutputSpec
from embershard.package.schema import Schema, Scope

__all__ = ["DenseProgram", "build_program"]

# Requests and examples of each trial; in the first one they differ, and so do the requests.
TRIALS = ((3, 7), (1, 1), (4, 4), (2, 9))
TOLERANCE = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProgram:
    """A module without its lookups."""

    script: Any
    """TorchScript: ``forward(request_inputs, example_inputs, request_of_example)``."""

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
            wide = torch.cat(vectors, dim=1) if vectors else dense.new_zeros(len(dense), 0)
            chosen = first if scope == "request" else slice(None)
            inputs[scope] = [dense[:, columns][chosen].contiguous(), wide[chosen].contiguous()]
        with torch.no_grad():
            result: dict[str, Tensor] = self.script(
                inputs["request"], inputs["example"], request_of_example
            )
        return result


def build_program(module: nn.Module, schema: Schema, *, seed: int) -> DenseProgram:
    """Split a module at its lookups, compile the rest, and check that they agree.

    Args:
        module: ``forward(dense, sparse)``; left as it was.
        schema: its inputs.
        seed: of the random inputs of the check.

    Raises:
        ExportError: the module cannot be traced, split or compiled, or the program's outputs
            differ from the module's.
    """
    with _evaluating(module), torch.no_grad():
        traced = trace(module)
        modules = _embedding_modules(module, {str(n.target) for n in traced.nodes})
        layout = lay_out(modules, schema)
        keys = {path: tuple(each.embedding_names()) for path, each in modules.items()}
        scoped = split(traced, schema, layout, keys)
        script = compile_program(module, scoped.graph)
        program = DenseProgram(script=script, schema=schema, layout=layout, outputs=())
        trials = [
            _Trial(program, modules, scoped.output_scopes, sizes, seed + place)
            for place, sizes in enumerate(TRIALS)
        ]
        specs = [trial.compare(module) for trial in trials]
    return DenseProgram(script=script, schema=schema, layout=layout, outputs=specs[0])


class _Trial:
    """One batch of random inputs, for the module and for its program."""

    def __init__(
        self,
        program: DenseProgram,
        modules: Mapping[str, EmbeddingModule],
        scopes: Mapping[str, Scope],
        sizes: tuple[int, int],
        seed: int,
    ) -> None:
        self._program, self._modules, self._scopes = program, modules, scopes
        self._requests, self._examples = sizes
        random = torch.Generator().manual_seed(seed)
        extra = torch.randint(self._requests, (self._examples - self._requests,), generator=random)
        self._request_of_example = torch.cat([torch.arange(self._requests), extra]).sort().values
        self._dense = self._random_dense(random)
        self._sparse = self._random_sparse(random)

    def compare(self, module: nn.Module) -> tuple[OutputSpec, ...]:
        """Run both; what the program's outputs are."""
        given = module(self._dense, self._sparse)
        expected = given if isinstance(given, dict) else {"score": given}
        pooled = {
            (path, key): vector
            for path, each in self._modules.items()
            for key, vector in each(self._sparse).to_dict().items()
        }
        got = self._program.run(self._dense, pooled, self._request_of_example)
        return tuple(self._output(name, expected[name], got[name]) for name in expected)

    def _output(self, name: str, expected: Tensor, got: Tensor) -> OutputSpec:
        where = f"output {name!r}, {self._requests} requests, {self._examples} examples"
        scope = self._scopes[name]
        rows = self._requests if scope == "request" else self._examples
        if got.dtype != torch.float32:
            raise ExportError(f"{where}: expected float32, got {got.dtype}")
        if got.ndim < 1 or got.shape[0] != rows or 0 in got.shape:
            raise ExportError(f"{where}: expected shape ({rows}, ...), got {tuple(got.shape)}")
        whole = got[self._request_of_example] if scope == "request" else got
        if whole.shape != expected.shape or not torch.allclose(
            whole, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=False
        ):
            raise ExportError(
                f"{where}: expected what the module gives for the same examples, got other "
                "values; does it compute across the rows of a batch?"
            )
        return OutputSpec(name=name, scope=scope, shape=tuple(got.shape[1:]))

    def _random_dense(self, random: torch.Generator) -> Tensor:
        dense = torch.randn(self._examples, len(self._program.schema.dense), generator=random)
        shared = dense[: self._requests][self._request_of_example]
        request = [item.scope == "request" for item in self._program.schema.dense]
        return torch.where(torch.tensor(request, dtype=torch.bool), shared, dense)

    def _random_sparse(self, random: torch.Generator) -> KeyedJaggedTensor:
        """Bags of 0 to 3 rows, those of a request alike in all its examples."""
        rows, lengths, weights = [], [], []
        weighted = any(item.weighted for item in self._program.schema.sparse)
        for item in self._program.schema.sparse:
            size = self._program.layout.rows(item)
            counts = torch.randint(4, (self._examples,), generator=random)
            bags = [torch.randint(size, (int(n),), generator=random) for n in counts]
            factors = [torch.rand(int(n), generator=random) for n in counts]
            shared = item.scope == "request"
            for example, request in enumerate(self._request_of_example.tolist()):
                place = request if shared else example
                rows.append(bags[place])
                weights.append(factors[place])
                lengths.append(len(bags[place]))
        nothing = torch.zeros(0, dtype=torch.int64)
        return KeyedJaggedTensor(
            keys=self._program.schema.sparse_names(),
            values=torch.cat([nothing, *rows]),
            lengths=torch.tensor(lengths, dtype=torch.int64),
            weights=torch.cat([torch.zeros(0), *weights]) if weighted else None,
        )


def _embedding_modules(module: nn.Module, called: set[str]) -> dict[str, EmbeddingModule]:
    found = {
        path: each
        for path, each in module.named_modules()
        if path in called and isinstance(each, EMBEDDING_MODULES)
    }
    if not found:
        raise ExportError(
            f"{type(module).__name__}: expected an EmbeddingBagCollection in forward, got none"
        )
    return found


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """In eval mode; each submodule's mode is put back."""
    training = {each: each.training for each in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for each, mode in training.items():
            each.training = mode
