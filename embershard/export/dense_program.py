"""The dense program of a package, which is a module without its lookups, and batches for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, fx, nn

from embershard.export.embeddings import (
    SCOPES,
    EmbeddingModule,
    Layout,
    TableLookup,
    returns_sequences,
)
from embershard.export.torchscript import run_program
from embershard.jagged import JaggedTensor, KeyedTensor
from embershard.package.manifest import DenseDtype, OutputSpec
from embershard.package.schema import Schema, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """Results of the lookups of B examples, by path of the embedding module and key."""

    pooled: Mapping[tuple[str, str], Tensor]
    """float32 ``(B, dim)``."""

    sequences: Mapping[tuple[str, str], JaggedTensor]
    """B lists of float32 vectors ``(total, dim)``."""

    def take(self, examples: Tensor) -> LookedUp:
        return LookedUp(
            pooled={key: rows[examples] for key, rows in self.pooled.items()},
            sequences={key: take_lists(lists, examples) for key, lists in self.sequences.items()},
        )


def take_lists(lists: JaggedTensor, places: Tensor) -> JaggedTensor:
    """The lists at positions ``places``, int64 ``(M,)``, in that order and with repeats."""
    all_lists = lists.to_dense()
    chosen = [all_lists[place] for place in places.tolist()]
    return JaggedTensor(torch.cat([lists.values()[:0], *chosen]), lengths=lists.lengths()[places])


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProgram:
    script: Any
    """TorchScript: ``forward(request_inputs, example_inputs, request_of_example)``."""

    graph: fx.Graph
    schema: Schema
    layout: Layout
    outputs: tuple[OutputSpec, ...]

    not_finite_line: str = ""
    """Source line and ": " of the first operation with NaN or infinity on random inputs, or ""."""

    float32: DenseProgram | None = None
    """The same program without rounding to bfloat16. None: this program does not round."""

    @property
    def dtype(self) -> DenseDtype:
        """Data type of the operands of linear layers."""
        return "bfloat16" if self.float32 else "float32"

    def run(
        self, dense: Tensor, looked_up: LookedUp, request_of_example: Tensor
    ) -> dict[str, Tensor]:
        """Run the program on ``dense``, float32 ``(B, inputs)`` in schema order;
        ``request_of_example`` is int64 ``(B,)``, ascending from 0 without gaps. Returns outputs by
        name, float32 ``(B, ...)``, or ``(R, ...)`` in request scope. Request-scoped inputs are
        taken from the first example of each request. Raises ExportError, which names an operation
        that fails."""
        first = torch.searchsorted(
            request_of_example, torch.arange(int(request_of_example[-1]) + 1)
        )
        inputs: dict[Scope, list[Tensor]] = {}
        places = {"request": first, "example": torch.arange(len(dense))}
        for scope in SCOPES:
            columns = [i for i, item in enumerate(self.schema.dense) if item.scope == scope]
            vectors = [
                looked_up.pooled[lookup.path, lookup.key][places[scope]]
                for lookup in self.layout.pooled
                if lookup.columns.scope == scope
            ]
            wide = torch.cat([dense.new_zeros(len(places[scope]), 0), *vectors], dim=1)
            inputs[scope] = [dense[places[scope]][:, columns], wide]
            for lookup in self.layout.sequences:
                if lookup.columns.scope == scope:
                    sequences = looked_up.sequences[lookup.path, lookup.key]
                    lists = take_lists(sequences, places[scope])
                    inputs[scope] += [lists.values(), lists.offsets()]
        return run_program(
            self.script, self.graph, inputs["request"], inputs["example"], request_of_example
        )


Forward: TypeAlias = Callable[..., Any]

SMALL = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    requests: int
    examples: int

    draw: Literal["normal", "positive", "small"]
    """Standard normal numbers, their absolute values, or these times `SMALL`."""

    longest: int = 4
    """Largest number of vectors in a list of a sequence."""

    shortest: int = 0
    """Smallest number of vectors in a list of a sequence."""

    dense_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """B examples with the results of their lookups, and the request of each."""

    dense: Tensor
    looked_up: LookedUp
    request_of_example: Tensor

    def split_examples(self) -> list[Batch]:
        return [self.take(place) for place in torch.arange(len(self.dense))[:, None]]

    def take(self, examples: Tensor) -> Batch:
        """A batch of the examples at int64 positions, all in one request."""
        one_request = torch.zeros(len(examples), dtype=torch.int64)
        return Batch(self.dense[examples], self.looked_up.take(examples), one_request)


def merge_requests(requests: Sequence[Batch]) -> Batch:
    looked_up = [request.looked_up for request in requests]
    counts = torch.tensor([len(request.dense) for request in requests])
    return Batch(
        torch.cat([request.dense for request in requests]),
        LookedUp(
            pooled={
                key: torch.cat([results.pooled[key] for results in looked_up])
                for key in looked_up[0].pooled
            },
            sequences={
                key: _concatenate([results.sequences[key] for results in looked_up])
                for key in looked_up[0].sequences
            },
        ),
        torch.repeat_interleave(torch.arange(len(requests)), counts),
    )


def _concatenate(parts: Sequence[JaggedTensor]) -> JaggedTensor:
    values = torch.cat([part.values() for part in parts])
    return JaggedTensor(values, lengths=torch.cat([part.lengths() for part in parts]))


def random_batch(trial: Trial, program: DenseProgram, seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    extra = torch.randint(trial.requests, (trial.examples - trial.requests,), generator=random)
    request_of_example = torch.cat([torch.arange(trial.requests), extra]).sort().values

    def numbers(rows: int, width: int) -> Tensor:
        drawn = torch.randn(rows, width, generator=random)
        if trial.draw == "normal":
            return drawn
        return drawn.abs() * (SMALL if trial.draw == "small" else 1)

    def draw(width: int, scope: Scope) -> Tensor:
        """Numbers ``(B, width)``. In request scope all examples of a request have the same."""
        rows = numbers(trial.examples, width)
        return rows[request_of_example] if scope == "request" else rows

    # By input, since lists of an input have the same lengths in all of its tables.
    lengths = {
        lookup.input.name: torch.randint(
            trial.shortest, trial.longest + 1, (trial.examples,), generator=random
        )
        for lookup in program.layout.sequences
    }

    def draw_lists(lookup: TableLookup) -> JaggedTensor:
        sizes = lengths[lookup.input.name]
        lists = JaggedTensor(numbers(int(sizes.sum()), lookup.columns.width), lengths=sizes)
        return take_lists(lists, request_of_example) if lookup.columns.scope == "request" else lists

    dense = [draw(1, item.scope) * trial.dense_scale for item in program.schema.dense]
    for item, values in zip(program.schema.dense, dense, strict=True):
        if item.transforms:
            values.abs_()  # Log1p is not finite for all negative numbers.
    pooled = {
        (lookup.path, lookup.key): draw(lookup.columns.width, lookup.columns.scope)
        for lookup in program.layout.pooled
    }
    sequences = {
        (lookup.path, lookup.key): draw_lists(lookup) for lookup in program.layout.sequences
    }
    empty = torch.zeros(trial.examples, 0)
    looked_up = LookedUp(pooled=pooled, sequences=sequences)
    return Batch(torch.cat([empty, *dense], dim=1), looked_up, request_of_example)


@contextmanager
def replace_lookups(modules: Mapping[str, EmbeddingModule], looked_up: LookedUp) -> Iterator[None]:
    """Let embedding modules return ``looked_up`` instead of looking anything up."""
    with ExitStack() as forwards:
        for path, module in modules.items():
            keys = module.embedding_names()
            if returns_sequences(module):
                forward = _return_sequences({key: looked_up.sequences[path, key] for key in keys})
            else:
                vectors = [looked_up.pooled[path, key] for key in keys]
                forward = _return_vectors(KeyedTensor.from_tensor_list(keys, vectors))
            forwards.enter_context(_with_forward(module, forward))
        yield


@contextmanager
def _with_forward(module: nn.Module, forward: Forward) -> Iterator[None]:
    before = vars(module).get("forward")  # torch.compile sets an attribute of the instance.
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]
        if before is not None:
            vars(module)["forward"] = before


# Each call returns a copy, since the module may write into it.


def _return_vectors(vectors: KeyedTensor) -> Forward:
    keys, lengths = vectors.keys(), vectors.length_per_key()
    return lambda *_: KeyedTensor(keys, lengths, vectors.values().clone())


def _return_sequences(sequences: dict[str, JaggedTensor]) -> Forward:
    return lambda *_: {
        key: JaggedTensor(lists.values().clone(), lengths=lists.lengths().clone())
        for key, lists in sequences.items()
    }
