"""Checks a dense program against the module that it was made from, on random batches.

What is compared, for R requests that share B examples:

    program(R requests, B examples)   with
    module(example 0), module(example 1), ...   each a batch of its own

so that a program that mixes scopes is refused, and so is a module whose score of an example
depends on its neighbours. Lookups are left out: both are given the same pooled vectors and
sequences. Of samples that come with the module, each request is such a part of a batch.
"""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, fx, nn

from embershard.errors import ExportError
from embershard.export.compared import Compared, close, stacked, tolerance_of
from embershard.export.dense_program import (
    Batch,
    DenseProgram,
    Trial,
    given_vectors,
    merged,
    random_batch,
)
from embershard.export.embeddings import EmbeddingModule
from embershard.export.located_faults import (
    crossing_remedy,
    empty_input_groups,
    explain,
    failure_remedy,
    finite_rows,
    first_crossing,
    first_not_finite,
    nested_tensor_remedy,
    random_constant,
    recorded,
    with_empty_lists,
)
from embershard.export.tracing import author_line, line_of
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import DenseTransforms
from embershard.package.manifest import OutputSpec
from embershard.package.schema import Scope

LOG = logging.getLogger(__name__)

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

# Finds the line that gives NaN or infinity for some of the inputs that random samples have.
MANY = Trial(8, 64, "normal")

# Of models with sequences, too: nobody in the batch has a history.
WITHOUT_LISTS = Trial(2, 5, "normal", longest=0)

# Dense inputs as prices and counts are: a condition on them may be false around 0.
WIDE_TRIALS = (
    Trial(3, 7, "normal", dense_scale=1e2),
    Trial(3, 7, "normal", dense_scale=1e4),
)

# Batches whose lists are emptied. Positive values keep logarithms finite.
BEFORE_EMPTYING = (Trial(4, 7, "positive", shortest=1), Trial(4, 7, "normal", shortest=1))


def check_program(
    module: nn.Module,
    traced: fx.Graph,
    program: DenseProgram,
    modules: Mapping[str, EmbeddingModule],
    output_scopes: Mapping[str, Scope],
    *,
    samples: Iterable[tuple[str, Sequence[Batch]]],
    seed: int,
) -> tuple[tuple[OutputSpec, ...], str]:
    """Compare a program with the module, in eval mode, whose trace it was made from, on random
    inputs and on groups of ``samples``; returns what the outputs are, and `not_finite_line`.
    ``modules``: those of embeddings by path."""
    checker = _Checker(module, traced, program, modules, output_scopes)
    trials = (*TRIALS, WITHOUT_LISTS) if program.layout.sequences else TRIALS
    runs = [checker.run(trial, seed + place) for place, trial in enumerate(trials)]
    not_finite = checker.not_finite_line(seed)
    for name in output_scopes:
        if not any(run[name].isfinite().all() for run in runs):
            raise ExportError(
                f"{not_finite}output {name!r}: expected finite values, got NaN or infinity in "
                "every batch of random inputs, positive ones too"
            )
    checker.run_wide(seed)
    for names, requests in samples:
        checker.compare(merged(requests), requests, names)
    for place, trial in enumerate(BEFORE_EMPTYING):
        checker.check_empty_lists(trial, seed + place)
    outputs = tuple(
        OutputSpec(name=name, scope=scope, shape=tuple(runs[0][name].shape[1:]))
        for name, scope in output_scopes.items()
    )
    return outputs, not_finite


@dataclass(frozen=True, slots=True)
class _Checker:
    module: nn.Module
    traced: fx.Graph
    program: DenseProgram
    modules: Mapping[str, EmbeddingModule]
    scopes: Mapping[str, Scope]

    def run(self, trial: Trial, seed: int) -> dict[str, Tensor]:
        """Compare on one random batch; gives the program's outputs."""
        batch = random_batch(trial, self.program, seed)
        where = f"{trial.requests} requests, {trial.examples} examples"
        return self.compare(batch, batch.each_alone(), where)

    def not_finite_line(self, seed: int) -> str:
        """Where the author wrote the first operation that gives NaN, else infinity, of a batch
        of random inputs, and ": "; nothing if the outputs are finite."""
        batch = random_batch(MANY, self.program, seed)
        with suppress(ExportError):  # It may fail on larger numbers than those of other batches.
            if not all(output.isfinite().all() for output in self._of_module(batch).values()):
                node = first_not_finite({}, self._recorded(batch))
                return f"{line_of(node)}: " if node else ""
        return ""

    def run_wide(self, seed: int) -> None:
        """Compare on large dense inputs. A module that takes none of that size is no error."""
        if not self.program.schema.dense:
            return
        for place, trial in enumerate(WIDE_TRIALS):
            batch = random_batch(trial, self.program, seed + place)
            where = (
                f"{trial.requests} requests, {trial.examples} examples, dense inputs of about "
                f"{trial.dense_scale:g}"
            )
            try:
                got, difference = self._compared(batch, batch.each_alone(), where)
            except ExportError as failure:
                self._warn(failure, batch, trial.dense_scale)
                return
            if difference is None:
                continue
            if self._differs(got, batch) or self._depends_on_neighbours(trial, seed + place):
                raise difference

    def _differs(self, got: Mapping[str, Tensor], batch: Batch) -> bool:
        """Whether the program gives other outputs than the module of the same batch."""
        tolerance = tolerance_of(batch.dense)
        for name, expected in self._of_module(batch).items():
            rows = batch.request_of_example if self.scopes[name] == "request" else slice(None)
            if not close(got[name][rows], expected, tolerance):
                return True
        return False

    def _depends_on_neighbours(self, trial: Trial, seed: int) -> bool:
        """Whether examples get other outputs beside others. All batches have one size: in those of
        other sizes, sums of large numbers are rounded in another order."""
        batch, other = (random_batch(trial, self.program, each) for each in (seed, -seed - 1))
        before, both = self._of_module(batch), merged([batch, other])
        places = torch.arange(trial.examples)
        for parity in (0, 1):
            kept = places % 2 == parity
            mixed = both.take(torch.where(kept, places, places + trial.examples))
            after = self._of_module(mixed)
            if any(not close(after[name][kept], given[kept]) for name, given in before.items()):
                return True
        return False

    def _warn(self, failure: ExportError, batch: Batch, dense_scale: float) -> None:
        """Say that the program fails as the module does, unless a check of the module's own, which
        a program does not hold, is what failed."""
        try:
            self.program.run(batch.dense, batch.looked_up, batch.request_of_example)
        except ExportError:
            LOG.warning(
                "dense inputs of about %g: %s; a server answers such a request with INTERNAL",
                dense_scale,
                failure,
            )

    def compare(self, batch: Batch, parts: Sequence[Batch], where: str) -> dict[str, Tensor]:
        """Compare on a batch that consists of ``parts``; gives the program's outputs."""
        got, difference = self._compared(batch, parts, where)
        if difference:
            raise difference
        return got

    def _compared(
        self, batch: Batch, parts: Sequence[Batch], where: str
    ) -> tuple[dict[str, Tensor], ExportError | None]:
        """The program's outputs, and the error to raise if they are wrong."""
        together = self._of_module(batch)
        alone = [self._of_module(each) for each in parts]
        got = self.program.run(batch.dense, batch.looked_up, batch.request_of_example)
        requests, examples = int(batch.request_of_example[-1]) + 1, len(batch.dense)
        for name, scope in self.scopes.items():
            compared = Compared(
                alone=stacked([each[name] for each in alone], [len(each.dense) for each in parts]),
                together=together[name],
                got=got[name],
                rows=batch.request_of_example if scope == "request" else slice(None),
                tolerance=tolerance_of(batch.dense),
            )
            problem = compared.problem(requests if scope == "request" else examples)
            if problem:
                place = f"output {name!r}, {where}"
                if not compared.crosses_rows():
                    return got, ExportError(f"{place}: {problem}")
                crossing = ExportError(self._crossing(batch, parts, f"{place}: {problem}"))
                return got, self._random(batch, place) or crossing
        return got, None

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

    def _random(self, batch: Batch, where: str) -> ExportError | None:
        """The refusal of a module that gives the same batch other outputs when it runs again."""
        first, again = self._recorded(batch), self._recorded(batch)
        node = next((n for n, value in first.items() if not close(again[n], value)), None)
        node = node or random_constant(self.module, self.traced)
        if node is None:
            return None
        return ExportError(
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

    def _crossing(self, batch: Batch, parts: Sequence[Batch], problem: str) -> str:
        """The problem, after the line that first computes across examples, and the remedy."""
        together = self._recorded(batch)
        alone = [self._recorded(each) for each in parts]
        alike = partial(close, tolerance=tolerance_of(batch.dense))
        node = first_crossing(together, alone, alike)
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
            arguments = (self._dense(batch), self._lists(batch))
            return recorded(self.module, self.traced, arguments)

    def _of_module(self, batch: Batch) -> dict[str, Tensor]:
        examples = len(batch.dense)
        with given_vectors(self.modules, batch.looked_up):
            try:
                given = self.module(self._dense(batch), self._lists(batch))
            except Exception as error:  # The author's code may raise anything.
                raise ExportError(
                    f"{author_line(error)}{type(self.module).__name__} fails on a batch of "
                    f"{examples} examples: {error}{failure_remedy(error)}"
                ) from error
        return given if isinstance(given, dict) else {"score": given}

    def _dense(self, batch: Batch) -> Tensor:
        """What the module takes: a copy, since a forward may assign items of its inputs."""
        transformed: Tensor = DenseTransforms(self.program.schema)(batch.dense.clone())
        return transformed

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
