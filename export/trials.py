"""Checks a dense program against the module that it was made from, on random batches.

What is compared, for R requests that share B examples:

    program(R requests, B examples)   with
    module(example 0), module(example 1), ...   each a batch of its own

so that a program that mixes scopes is refused, and so is a module whose score of an example
depends on its neighbours. Lookups are left out: both are given the same pooled vectors and
sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, fx, nn

from embershard.errors import ExportError
from embershard.export.compared import Compared, close, stacked
from embershard.export.crossing import first_crossing, recorded
from embershard.export.dense_program import DenseProgram, LookedUp, take_lists
from embershard.export.embeddings import EmbeddingModule, SequenceLookup, gives_sequences
from embershard.export.tracing import author_line, line_of
from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.package.manifest import OutputSpec
from embershard.package.schema import Scope

__all__ = ["Trial", "check_program"]

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


# Far apart sizes first. Values around 1, because small tables would hide a mix-up in rounding;
# small ones, because large ones saturate; and positive ones, because some models take logarithms.
TRIALS = (
    Trial(3, 7, "normal"),
    Trial(3, 7, "positive"),
    Trial(3, 7, "small"),
    Trial(1, 1, "normal"),
    Trial(4, 4, "normal"),
    Trial(2, 9, "positive"),
)

# Of models with sequences, too: nobody in the batch has a history.
WITHOUT_LISTS = Trial(2, 5, "normal", longest=0)


def check_program(
    module: nn.Module,
    traced: fx.Graph,
    program: DenseProgram,
    modules: Mapping[str, EmbeddingModule],
    output_scopes: Mapping[str, Scope],
    *,
    seed: int,
) -> tuple[OutputSpec, ...]:
    """Compare a program with its module.

    Args:
        module: in eval mode.
        traced: its trace.
        program: made from that.
        modules: the embedding modules by path.
        output_scopes: by output.
        seed: of the random inputs.

    Returns:
        What the outputs are.

    Raises:
        ExportError: they differ, either fails, or an output is no float32 with a row for each
            example or request, or never finite.
    """
    checker = _Checker(module, traced, program, modules, output_scopes)
    trials = (*TRIALS, WITHOUT_LISTS) if program.layout.sequences else TRIALS
    runs = [checker.run(trial, seed + place) for place, trial in enumerate(trials)]
    for name in output_scopes:
        if not any(run[name].isfinite().all() for run in runs):
            raise ExportError(
                f"output {name!r}: expected finite values, got NaN or infinity in every batch of "
                "random inputs, positive ones too"
            )
    return tuple(
        OutputSpec(name=name, scope=scope, shape=tuple(runs[0][name].shape[1:]))
        for name, scope in output_scopes.items()
    )


@dataclass(frozen=True, slots=True)
class _Checker:
    module: nn.Module
    traced: fx.Graph
    program: DenseProgram
    modules: Mapping[str, EmbeddingModule]
    scopes: Mapping[str, Scope]

    def run(self, trial: Trial, seed: int) -> dict[str, Tensor]:
        """Compare on one batch; gives the program's outputs."""
        batch = _random_batch(trial, self.program, seed)
        together = self._of_module(batch)
        alone = [self._of_module(each) for each in batch.each_alone()]
        got = self.program.run(batch.dense, batch.looked_up, batch.request_of_example)
        for name, scope in self.scopes.items():
            compared = Compared(
                alone=stacked([each[name] for each in alone]),
                together=together[name],
                got=got[name],
                rows=batch.request_of_example if scope == "request" else slice(None),
            )
            problem = compared.problem(trial.requests if scope == "request" else trial.examples)
            if problem:
                where = f"output {name!r}, {trial.requests} requests, {trial.examples} examples"
                if compared.crosses_rows():
                    self._refuse_random(batch, where)
                    raise ExportError(f"{self._crossing(batch)}{where}: {problem}")
                raise ExportError(f"{where}: {problem}")
        return got

    def _refuse_random(self, batch: _Batch, where: str) -> None:
        """Refuse a module that gives the same batch other outputs when it runs again."""
        first, again = self._recorded(batch), self._recorded(batch)
        node = next((n for n, value in first.items() if not close(again[n], value)), None)
        if node is not None:
            raise ExportError(
                f"{line_of(node)}: {where}: expected the same for the same inputs, got others when "
                f"run again: it draws random numbers; write {self._without_chance(node)}"
            )

    def _without_chance(self, node: fx.Node) -> str:
        if node.op == "call_module":
            layer = type(self.module.get_submodule(str(node.target))).__name__
            if layer.startswith("FractionalMaxPool"):
                return f"nn.AdaptiveMaxPool{layer[-2:]}"
        if getattr(node.target, "__name__", "").endswith("dropout"):
            return "training=self.training, or nn.Dropout"
        return "it for training alone: if self.training: ..."

    def _crossing(self, batch: _Batch) -> str:
        """Where the module first computes across examples: ``file:line: code: ``."""
        together = self._recorded(batch)
        alone = [self._recorded(each) for each in batch.each_alone()]
        node = first_crossing(together, alone, close)
        return f"{line_of(node)}: " if node is not None else ""

    def _recorded(self, batch: _Batch) -> dict[fx.Node, Tensor]:
        with _given_vectors(self.modules, batch.looked_up):
            # Copies: a forward may assign items of its inputs.
            arguments = (batch.dense.clone(), self._lists(batch))
            return recorded(self.module, self.traced, arguments)

    def _of_module(self, batch: _Batch) -> dict[str, Tensor]:
        examples = len(batch.dense)
        with _given_vectors(self.modules, batch.looked_up):
            try:
                given = self.module(batch.dense.clone(), self._lists(batch))
            except Exception as error:  # The author's code may raise anything.
                raise ExportError(
                    f"{author_line(error)}{type(self.module).__name__} fails on a batch of "
                    f"{examples} examples: {error}"
                ) from error
        return given if isinstance(given, dict) else {"score": given}

    def _lists(self, batch: _Batch) -> KeyedJaggedTensor:
        """What the embedding modules are called with: their vectors are replaced anyway.

        Inputs without sequences have empty lists, since nothing else may read them.
        """
        inputs = self.program.schema.sparse
        lists = {
            each.input.name: batch.looked_up.sequences[each.path, each.key].lengths()
            for each in self.program.layout.sequences
        }
        empty = torch.zeros(len(batch.dense), dtype=torch.int64)
        lengths = torch.cat([lists.get(item.name, empty) for item in inputs])
        ids = int(lengths.sum())
        return KeyedJaggedTensor(
            keys=[item.name for item in inputs],
            values=torch.zeros(ids, dtype=torch.int64),
            lengths=lengths,
            weights=torch.zeros(ids) if any(item.weighted for item in inputs) else None,
        )


@dataclass(frozen=True, slots=True)
class _Batch:
    dense: Tensor
    looked_up: LookedUp
    request_of_example: Tensor

    def each_alone(self) -> list[_Batch]:
        """Every example as a batch of its own."""
        return [self._one(torch.tensor([place])) for place in range(len(self.dense))]

    def _one(self, place: Tensor) -> _Batch:
        alone = torch.zeros(1, dtype=torch.int64)
        return _Batch(self.dense[place], self.looked_up.take(place), alone)


def _random_batch(trial: Trial, program: DenseProgram, seed: int) -> _Batch:
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
        each.input.name: torch.randint(trial.longest + 1, (trial.examples,), generator=random)
        for each in program.layout.sequences
    }

    def draw_lists(each: SequenceLookup) -> JaggedTensor:
        """B lists, likewise."""
        own = lengths[each.input.name]
        lists = JaggedTensor(numbers(int(own.sum()), each.place.width), lengths=own)
        return take_lists(lists, request_of_example) if each.place.scope == "request" else lists

    dense = [draw(1, item.scope) for item in program.schema.dense]
    pooled = {
        (each.path, each.key): draw(each.columns.width, each.columns.scope)
        for each in program.layout.pooled
    }
    sequences = {(each.path, each.key): draw_lists(each) for each in program.layout.sequences}
    empty = torch.zeros(trial.examples, 0)
    looked_up = LookedUp(pooled=pooled, sequences=sequences)
    return _Batch(torch.cat([empty, *dense], dim=1), looked_up, request_of_example)


@contextmanager
def _given_vectors(modules: Mapping[str, EmbeddingModule], looked_up: LookedUp) -> Iterator[None]:
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
