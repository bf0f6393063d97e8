"""The dense program of a package: a module without its lookups."""

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
    gives_sequences,
)
from embershard.export.torchscript import run_program
from embershard.jagged import JaggedTensor, KeyedTensor
from embershard.package.manifest import DenseDtype, OutputSpec
from embershard.package.schema import Schema, Scope


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

    not_finite_line: str = ""
    """Source line and ": " of the first operation that is not finite on random inputs; empty if all
    are."""

    float32: DenseProgram | None = None
    """The same without the rounding of its linear layers to bfloat16. None: it has none."""

    @property
    def dtype(self) -> DenseDtype:
        """What its linear layers take."""
        return "bfloat16" if self.float32 else "float32"

    def run(
        self, dense: Tensor, looked_up: LookedUp, request_of_example: Tensor
    ) -> dict[str, Tensor]:
        """Outputs by name, float32 ``(B or R, ...)``, of inputs that were expanded to examples.
        ``dense``: float32 ``(B, inputs)`` in schema order. ``request_of_example``: int64 ``(B,)``,
        ascending from 0, no number left out. Of each request's examples the first gives its
        request-scoped inputs. `ExportError`: an operation fails; it is named."""
        first = torch.searchsorted(
            request_of_example, torch.arange(int(request_of_example[-1]) + 1)
        )
        inputs: dict[Scope, list[Tensor]] = {}
        places = {"request": first, "example": torch.arange(len(dense))}
        for scope in SCOPES:
            columns = [i for i, item in enumerate(self.schema.dense) if item.scope == scope]
            vectors = [
                looked_up.pooled[each.path, each.key][places[scope]]
                for each in self.layout.pooled
                if each.columns.scope == scope
            ]
            wide = torch.cat([dense.new_zeros(len(places[scope]), 0), *vectors], dim=1)
            inputs[scope] = [dense[places[scope]][:, columns], wide]
            for each in self.layout.sequences:
                if each.columns.scope == scope:
                    lists = take_lists(looked_up.sequences[each.path, each.key], places[scope])
                    inputs[scope] += [lists.values(), lists.offsets()]
        return run_program(
            self.script, self.graph, inputs["request"], inputs["example"], request_of_example
        )


Forward: TypeAlias = Callable[..., Any]

# Of a "small" trial, which is positive too: the standard deviation.
SMALL = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """The size of one batch, and what its dense inputs and pooled vectors look like."""

    requests: int
    examples: int
    draw: Literal["normal", "positive", "small"]

    longest: int = 4
    """Most vectors in a list of a sequence."""

    shortest: int = 0
    """Fewest vectors in one."""

    dense_scale: float = 1.0
    """What dense inputs are multiplied by."""


@dataclass(frozen=True, slots=True)
class Batch:
    """B examples, their looked up vectors, and the request of each."""

    dense: Tensor
    looked_up: LookedUp
    request_of_example: Tensor

    def each_alone(self) -> list[Batch]:
        """Every example as a batch of its own."""
        return [self.take(place) for place in torch.arange(len(self.dense))[:, None]]

    def take(self, examples: Tensor) -> Batch:
        """Some examples, int64 positions, as of one request."""
        alike = torch.zeros(len(examples), dtype=torch.int64)
        return Batch(self.dense[examples], self.looked_up.take(examples), alike)


def merged(requests: Sequence[Batch]) -> Batch:
    """Batches of one request each as one batch, in that order."""
    looked_up = [each.looked_up for each in requests]
    counts = torch.tensor([len(each.dense) for each in requests])
    return Batch(
        torch.cat([each.dense for each in requests]),
        LookedUp(
            pooled={
                key: torch.cat([each.pooled[key] for each in looked_up])
                for key in looked_up[0].pooled
            },
            sequences={
                key: _joined([each.sequences[key] for each in looked_up])
                for key in looked_up[0].sequences
            },
        ),
        torch.repeat_interleave(torch.arange(len(requests)), counts),
    )


def _joined(lists: Sequence[JaggedTensor]) -> JaggedTensor:
    values = torch.cat([each.values() for each in lists])
    return JaggedTensor(values, lengths=torch.cat([each.lengths() for each in lists]))


def random_batch(trial: Trial, program: DenseProgram, seed: int) -> Batch:
    """Random values for the inputs and lookups of a program."""
    random = torch.Generator().manual_seed(seed)
    extra = torch.randint(trial.requests, (trial.examples - trial.requests,), generator=random)
    request_of_example = torch.cat([torch.arange(trial.requests), extra]).sort().values

    def numbers(rows: int, width: int) -> Tensor:
        drawn = torch.randn(rows, width, generator=random)
        if trial.draw == "normal":
            return drawn
        return drawn.abs() * (SMALL if trial.draw == "small" else 1)

    def draw(width: int, scope: Scope) -> Tensor:
        """``(B, width)``, alike in all examples of a request where the scope says so."""
        rows = numbers(trial.examples, width)
        return rows[request_of_example] if scope == "request" else rows

    # Of an input in several tables, its lists are as long in each.
    lengths = {
        each.input.name: torch.randint(
            trial.shortest, trial.longest + 1, (trial.examples,), generator=random
        )
        for each in program.layout.sequences
    }

    def draw_lists(each: TableLookup) -> JaggedTensor:
        """B lists, likewise."""
        own = lengths[each.input.name]
        lists = JaggedTensor(numbers(int(own.sum()), each.columns.width), lengths=own)
        return take_lists(lists, request_of_example) if each.columns.scope == "request" else lists

    dense = [draw(1, item.scope) * trial.dense_scale for item in program.schema.dense]
    for item, values in zip(program.schema.dense, dense, strict=True):
        if item.transforms:
            values.abs_()  # Log1p may not take negative ones.
    pooled = {
        (each.path, each.key): draw(each.columns.width, each.columns.scope)
        for each in program.layout.pooled
    }
    sequences = {(each.path, each.key): draw_lists(each) for each in program.layout.sequences}
    empty = torch.zeros(trial.examples, 0)
    looked_up = LookedUp(pooled=pooled, sequences=sequences)
    return Batch(torch.cat([empty, *dense], dim=1), looked_up, request_of_example)


@contextmanager
def given_vectors(modules: Mapping[str, EmbeddingModule], looked_up: LookedUp) -> Iterator[None]:
    """Let embedding modules give ``looked_up`` without looking anything up."""
    with ExitStack() as forwards:
        for path, module in modules.items():
            keys = module.embedding_names()
            if gives_sequences(module):
                forward = _sequences({key: looked_up.sequences[path, key] for key in keys})
            else:
                vectors = [looked_up.pooled[path, key] for key in keys]
                forward = _vectors(KeyedTensor.from_tensor_list(keys, vectors))
            forwards.enter_context(_with_forward(module, forward))
        yield


@contextmanager
def _with_forward(module: nn.Module, forward: Forward) -> Iterator[None]:
    before = vars(module).get("forward")  # A compiled module has its own.
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]
        if before is not None:
            vars(module)["forward"] = before


# A copy each time: the module may write into it.


def _vectors(vectors: KeyedTensor) -> Forward:
    keys, lengths = vectors.keys(), vectors.length_per_key()
    return lambda *_: KeyedTensor(keys, lengths, vectors.values().clone())


def _sequences(found: dict[str, JaggedTensor]) -> Forward:
    return lambda *_: {
        key: JaggedTensor(lists.values().clone(), lengths=lists.lengths().clone())
        for key, lists in found.items()
    }
