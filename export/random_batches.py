"""Random batches for the checks of a dense program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from embershard.export.dense_program import DenseProgram, LookedUp, take_lists
from embershard.export.embeddings import EmbeddingModule, TableLookup, gives_sequences
from embershard.jagged import JaggedTensor, KeyedTensor
from embershard.package.schema import Scope

Hook: TypeAlias = Callable[[nn.Module, Any, Any], Any]

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


@dataclass(frozen=True, slots=True)
class Batch:
    """B examples, their looked up vectors, and the request of each."""

    dense: Tensor
    looked_up: LookedUp
    request_of_example: Tensor

    def each_alone(self) -> list[Batch]:
        """Every example as a batch of its own."""
        return [self._one(torch.tensor([place])) for place in range(len(self.dense))]

    def _one(self, place: Tensor) -> Batch:
        alone = torch.zeros(1, dtype=torch.int64)
        return Batch(self.dense[place], self.looked_up.take(place), alone)


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

    dense = [draw(1, item.scope) for item in program.schema.dense]
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
    """Let embedding modules give ``looked_up`` instead of what they look up."""
    with ExitStack() as hooks:
        for path, module in modules.items():
            keys = module.embedding_names()
            if gives_sequences(module):
                replace = _sequences({key: looked_up.sequences[path, key] for key in keys})
            else:
                found = [looked_up.pooled[path, key] for key in keys]
                replace = _vectors(KeyedTensor.from_tensor_list(keys, found))
            hooks.callback(module.register_forward_hook(replace).remove)
        yield


# A copy each time: the module may write into it.


def _vectors(vectors: KeyedTensor) -> Hook:
    def hook(module: nn.Module, given: Any, output: Any) -> KeyedTensor:
        return KeyedTensor(vectors.keys(), vectors.length_per_key(), vectors.values().clone())

    return hook


def _sequences(found: dict[str, JaggedTensor]) -> Hook:
    def hook(module: nn.Module, given: Any, output: Any) -> dict[str, JaggedTensor]:
        return {
            key: JaggedTensor(lists.values().clone(), lengths=lists.lengths().clone())
            for key, lists in found.items()
        }

    return hook
