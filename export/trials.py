"""Checks a dense program against the module that it was made from, on random batches.

What is compared, for R requests that share B examples:

    program(R requests, B examples)   with
    module(example 0), module(example 1), ...   each a batch of its own

so that a program that mixes scopes is refused, and so is a module whose score of an example
depends on its neighbours. Lookups are left out: both are given the same pooled vectors and
sequences.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from embershard.errors import ExportError
from embershard.export.dense_program import Batch, DenseProgram, Trial, given_vectors, random_batch
from embershard.export.embeddings import EmbeddingModule
from embershard.export.located_faults import (
    crossing_remedy,
    empty_input_groups,
    explain,
    failure_remedy,
    finite_rows,
    first_crossing,
    nested_tensor_remedy,
    recorded,
    with_empty_lists,
)
from embershard.export.tracing import author_line, line_of
from embershard.jagged import KeyedJaggedTensor
from embershard.package.manifest import OutputSpec
from embershard.package.schema import Scope

TOLERANCE = 1e-5
# Of all that is compared, the part of the largest value below which differences are rounding.
SMALLEST = 1e-2


@dataclass(frozen=True, slots=True)
class Compared:
    """One output, three times."""

    alone: Tensor | None
    """Of the module, example by example."""

    together: Tensor
    """Of the module, all examples in one batch."""

    got: Tensor
    """Of the program."""

    rows: Tensor | slice
    """Which rows of ``got`` the examples have."""

    def problem(self, count: int) -> str | None:
        """What is wrong, if anything; ``count`` rows are expected of the program."""
        got = self.got
        if got.dtype != torch.float32:
            return f"expected float32, got {got.dtype}; write .float()"
        if got.ndim < 1 or got.shape[0] != count or 0 in got.shape:
            return f"expected a row for each, ({count}, ...), got shape {tuple(got.shape)}"
        if self.alone is None:
            return (
                f"expected a row for each example, got that for {count} rows but not for a batch "
                "of one example; write squeeze(-1) in place of squeeze()"
            )
        if self.crosses_rows():
            return (
                "expected every example's output to depend on that example alone, got another in "
                "a batch than alone; it is computed across the rows of a batch"
            )
        if not close(got[self.rows], self.alone):
            return (
                "expected what the module gives for the same examples, got other values; an "
                "operation takes rows of requests for rows of examples, or means something else "
                "in TorchScript"
            )
        return None

    def crosses_rows(self) -> bool:
        """Whether the module itself gives an example another output in company."""
        return self.alone is None or not close(self.together, self.alone)


def close(got: Tensor, expected: Tensor) -> bool:
    """Alike but for rounding; NaN is like NaN."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if not expected.is_floating_point():
        return torch.equal(got, expected)
    finite = expected[expected.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    atol = TOLERANCE * max(largest, SMALLEST)
    return torch.allclose(got, expected, rtol=TOLERANCE, atol=atol, equal_nan=True)


def stacked(alone: list[Tensor]) -> Tensor | None:
    """Outputs of single examples as one; None where that is no tensor of one row each."""
    if any(not isinstance(each, Tensor) or each.ndim < 1 or len(each) != 1 for each in alone):
        return None
    return torch.cat(alone)


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

# Batches whose lists are emptied. Positive values keep logarithms finite.
BEFORE_EMPTYING = (Trial(4, 7, "positive", shortest=1), Trial(4, 7, "normal", shortest=1))


def check_program(
    module: nn.Module,
    traced: fx.Graph,
    program: DenseProgram,
    modules: Mapping[str, EmbeddingModule],
    output_scopes: Mapping[str, Scope],
    *,
    seed: int,
) -> tuple[OutputSpec, ...]:
    """Compare a program with the module, in eval mode, whose trace it was made from, on random
    inputs; returns what the outputs are. ``modules``: those of embeddings by path."""
    checker = _Checker(module, traced, program, modules, output_scopes)
    trials = (*TRIALS, WITHOUT_LISTS) if program.layout.sequences else TRIALS
    runs = [checker.run(trial, seed + place) for place, trial in enumerate(trials)]
    for name in output_scopes:
        if not any(run[name].isfinite().all() for run in runs):
            raise ExportError(
                f"output {name!r}: expected finite values, got NaN or infinity in every batch of "
                "random inputs, positive ones too"
            )
    for place, trial in enumerate(BEFORE_EMPTYING):
        checker.check_empty_lists(trial, seed + place)
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
        batch = random_batch(trial, self.program, seed)
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
                    raise ExportError(self._crossing(batch, f"{where}: {problem}"))
                raise ExportError(f"{where}: {problem}")
        return got

    def check_empty_lists(self, trial: Trial, seed: int) -> None:
        """Refuse outputs that are finite with lists, and not finite if some or all are empty."""
        full = random_batch(trial, self.program, seed)
        before = self._finite(full)
        for names in empty_input_groups(self.program.layout):
            for empty in (full.request_of_example >= 0, full.request_of_example % 2 == 0):
                emptied = with_empty_lists(full.looked_up, self.program.layout, names, empty)
                batch = dataclasses.replace(full, looked_up=emptied)
                for output, finite in self._finite(batch).items():
                    if bool((before[output] & ~finite).any()):
                        recordings = self._recorded(full), self._recorded(batch)
                        raise ExportError(explain(self.module, *recordings, names, output))

    def _finite(self, batch: Batch) -> dict[str, Tensor]:
        got = self.program.run(batch.dense, batch.looked_up, batch.request_of_example)
        return {name: finite_rows(output) for name, output in got.items()}

    def _refuse_random(self, batch: Batch, where: str) -> None:
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

    def _crossing(self, batch: Batch, problem: str) -> str:
        """The problem, after the line that first computes across examples, and the remedy."""
        together = self._recorded(batch)
        alone = [self._recorded(each) for each in batch.each_alone()]
        node = first_crossing(together, alone, close)
        if node is None:
            return problem
        instead = (
            ""
            if "; write " in problem
            else crossing_remedy(node) or nested_tensor_remedy(self.module)
        )
        return f"{line_of(node)}: {problem}{instead}"

    def _recorded(self, batch: Batch) -> dict[fx.Node, Tensor]:
        with given_vectors(self.modules, batch.looked_up):
            # Copies: a forward may assign items of its inputs.
            arguments = (batch.dense.clone(), self._lists(batch))
            return recorded(self.module, self.traced, arguments)

    def _of_module(self, batch: Batch) -> dict[str, Tensor]:
        examples = len(batch.dense)
        with given_vectors(self.modules, batch.looked_up):
            try:
                given = self.module(batch.dense.clone(), self._lists(batch))
            except Exception as error:  # The author's code may raise anything.
                raise ExportError(
                    f"{author_line(error)}{type(self.module).__name__} fails on a batch of "
                    f"{examples} examples: {error}{failure_remedy(error)}"
                ) from error
        return given if isinstance(given, dict) else {"score": given}

    def _lists(self, batch: Batch) -> KeyedJaggedTensor:
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
