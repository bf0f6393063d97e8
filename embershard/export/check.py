"""Compares a dense program with its module, on random batches and on samples.

For a batch of B examples in R requests, two results must be equal:

    program(R requests, B examples)
    module(example 0), module(example 1), ...   each as a batch of one example

This refuses a program that mixes scopes, and a module whose scores depend on the other examples of
a batch. Both get the same results of lookups. Samples are split into requests instead of examples.
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
from embershard.export.comparison import Comparison, close, concatenate_outputs, tolerance_of
from embershard.export.dense_program import (
    Batch,
    DenseProgram,
    Trial,
    merge_requests,
    random_batch,
    replace_lookups,
)
from embershard.export.embeddings import EmbeddingModule
from embershard.export.faults import (
    crossing_remedy,
    empty_input_groups,
    empty_lists_message,
    failure_remedy,
    finite_rows,
    first_crossing,
    first_not_finite,
    nested_tensor_remedy,
    random_constant,
    record_values,
    with_empty_lists,
)
from embershard.export.trace import author_line, line_of
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import DenseTransforms
from embershard.package.manifest import OutputSpec
from embershard.package.schema import Scope

LOG = logging.getLogger(__name__)

# Values around 1, since rounding would hide mistakes in small ones. Small values, since large ones
# saturate a sigmoid. Positive values, since some models compute logarithms.
TRIALS = (
    Trial(3, 7, "normal"),
    Trial(3, 7, "positive"),
    Trial(3, 7, "small"),
    Trial(1, 1, "normal"),
    Trial(4, 4, "normal"),
    Trial(2, 9, "positive"),
)

# Large enough that an operation with NaN or infinity for some random inputs is likely to have one.
MANY = Trial(8, 64, "normal")

# For models with sequences: all lists of the batch are empty.
WITHOUT_LISTS = Trial(2, 5, "normal", longest=0)

# Dense inputs as large as prices and counts. Conditions in forward may depend on their size.
WIDE_TRIALS = (
    Trial(3, 7, "normal", dense_scale=1e2),
    Trial(3, 7, "normal", dense_scale=1e4),
)

# Batches before their lists are emptied. Positive values keep logarithms finite.
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
    """Compare a program with its module, which is in eval mode. Returns the manifest's specs of the
    outputs, and the program's ``not_finite_line``. Raises ExportError if outputs differ, or are not
    finite. For ``samples`` see `sample_groups`."""
    checker = _Checker(module, traced, program, modules, output_scopes)
    trials = (*TRIALS, WITHOUT_LISTS) if program.layout.sequences else TRIALS
    runs = [checker.run(trial, seed + place) for place, trial in enumerate(trials)]
    not_finite = checker.not_finite_line(seed)
    for name in output_scopes:
        if not any(run[name].isfinite().all() for run in runs):
            raise ExportError(
                f"{not_finite}output {name!r}: expected finite values, got NaN or infinity in all "
                "batches of random inputs, even if these are positive"
            )
    checker.run_wide(seed)
    for names, requests in samples:
        checker.compare(merge_requests(requests), requests, names)
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
        batch = random_batch(trial, self.program, seed)
        where = f"{trial.requests} requests, {trial.examples} examples"
        return self.compare(batch, batch.split_examples(), where)

    def not_finite_line(self, seed: int) -> str:
        """The author's line of the first operation with NaN or infinity in a random batch, and
        ": ". Empty if the outputs are finite."""
        batch = random_batch(MANY, self.program, seed)
        with suppress(ExportError):  # A large batch has larger numbers, on which forward may fail.
            if not all(output.isfinite().all() for output in self._run_module(batch).values()):
                node = first_not_finite({}, self._record(batch))
                return f"{line_of(node)}: " if node else ""
        return ""

    def run_wide(self, seed: int) -> None:
        """Compare on large dense inputs. A module may fail on them, which is only a warning."""
        if not self.program.schema.dense:
            return
        for place, trial in enumerate(WIDE_TRIALS):
            batch = random_batch(trial, self.program, seed + place)
            where = (
                f"{trial.requests} requests, {trial.examples} examples, dense inputs of about "
                f"{trial.dense_scale:g}"
            )
            try:
                outputs, difference = self._compare(batch, batch.split_examples(), where)
            except ExportError as failure:
                self._warn(failure, batch, trial.dense_scale)
                return
            if difference is None:
                continue
            if self._differs(outputs, batch) or self._depends_on_neighbours(trial, seed + place):
                raise difference

    def _differs(self, outputs: Mapping[str, Tensor], batch: Batch) -> bool:
        tolerance = tolerance_of(batch.dense)
        for name, expected in self._run_module(batch).items():
            rows = batch.request_of_example if self.scopes[name] == "request" else slice(None)
            if not close(outputs[name][rows], expected, tolerance):
                return True
        return False

    def _depends_on_neighbours(self, trial: Trial, seed: int) -> bool:
        """True if an example has another output when the other examples of its batch change. All
        batches have the same size, since rounding of sums of large numbers depends on it."""
        batch = random_batch(trial, self.program, seed)
        other = random_batch(trial, self.program, -seed - 1)
        before, both = self._run_module(batch), merge_requests([batch, other])
        places = torch.arange(trial.examples)
        for parity in (0, 1):
            kept = places % 2 == parity
            mixed = both.take(torch.where(kept, places, places + trial.examples))
            after = self._run_module(mixed)
            if any(not close(after[name][kept], output[kept]) for name, output in before.items()):
                return True
        return False

    def _warn(self, failure: ExportError, batch: Batch, dense_scale: float) -> None:
        """Warn if the program fails like the module. It does not if only a check in forward
        failed, since programs have no such checks."""
        try:
            self.program.run(batch.dense, batch.looked_up, batch.request_of_example)
        except ExportError:
            LOG.warning(
                "dense inputs of about %g: %s; a server answers such requests with INTERNAL",
                dense_scale,
                failure,
            )

    def compare(self, batch: Batch, parts: Sequence[Batch], where: str) -> dict[str, Tensor]:
        outputs, difference = self._compare(batch, parts, where)
        if difference:
            raise difference
        return outputs

    def _compare(
        self, batch: Batch, parts: Sequence[Batch], where: str
    ) -> tuple[dict[str, Tensor], ExportError | None]:
        together = self._run_module(batch)
        alone = [self._run_module(part) for part in parts]
        counts = [len(part.dense) for part in parts]
        outputs = self.program.run(batch.dense, batch.looked_up, batch.request_of_example)
        requests, examples = int(batch.request_of_example[-1]) + 1, len(batch.dense)
        for name, scope in self.scopes.items():
            comparison = Comparison(
                alone=concatenate_outputs([part[name] for part in alone], counts),
                together=together[name],
                program=outputs[name],
                rows=batch.request_of_example if scope == "request" else slice(None),
                tolerance=tolerance_of(batch.dense),
            )
            problem = comparison.problem(requests if scope == "request" else examples)
            if problem:
                place = f"output {name!r}, {where}"
                if not comparison.crosses_rows():
                    return outputs, ExportError(f"{place}: {problem}")
                crossing = ExportError(self._crossing_message(batch, parts, f"{place}: {problem}"))
                return outputs, self._randomness(batch, place) or crossing
        return outputs, None

    def check_empty_lists(self, trial: Trial, seed: int) -> None:
        """Refuse outputs that stop being finite if some or all lists are empty."""
        full = random_batch(trial, self.program, seed)
        before = self._finite_rows(full)
        for names in empty_input_groups(self.program.layout):
            for empty in (full.request_of_example >= 0, full.request_of_example % 2 == 0):
                emptied = with_empty_lists(full.looked_up, self.program.layout, names, empty)
                batch = dataclasses.replace(full, looked_up=emptied)
                for output, finite in self._finite_rows(batch).items():
                    if bool((before[output] & ~finite).any()):
                        recordings = self._record(full), self._record(batch)
                        raise ExportError(
                            empty_lists_message(self.module, *recordings, names, output)
                        )

    def _finite_rows(self, batch: Batch) -> dict[str, Tensor]:
        outputs = self.program.run(batch.dense, batch.looked_up, batch.request_of_example)
        return {name: finite_rows(output) for name, output in outputs.items()}

    def _randomness(self, batch: Batch, where: str) -> ExportError | None:
        first, again = self._record(batch), self._record(batch)
        node = next((n for n, value in first.items() if not close(again[n], value)), None)
        node = node or random_constant(self.module, self.traced)
        if node is None:
            return None
        return ExportError(
            f"{line_of(node)}: {where}: expected equal outputs for equal inputs, got others in a "
            f"second run: it draws random numbers; write {self._randomness_remedy(node)}"
        )

    def _randomness_remedy(self, node: fx.Node) -> str:
        if node.op == "call_module":
            layer = type(self.module.get_submodule(str(node.target))).__name__
            if layer.startswith("FractionalMaxPool"):
                return f"nn.AdaptiveMaxPool{layer[-2:]}"
        if getattr(node.target, "__name__", "").endswith("dropout"):
            return "training=self.training, or nn.Dropout"
        return "if self.training: before it"

    def _crossing_message(self, batch: Batch, parts: Sequence[Batch], problem: str) -> str:
        """The line that first computes across examples, the problem, and advice."""
        together = self._record(batch)
        alone = [self._record(part) for part in parts]
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

    def _record(self, batch: Batch) -> dict[fx.Node, Tensor]:
        with replace_lookups(self.modules, batch.looked_up):
            arguments = (self._dense(batch), self._lists(batch))
            return record_values(self.module, self.traced, arguments)

    def _run_module(self, batch: Batch) -> dict[str, Tensor]:
        examples = len(batch.dense)
        with replace_lookups(self.modules, batch.looked_up):
            try:
                outputs = self.module(self._dense(batch), self._lists(batch))
            except Exception as error:  # The author's code may raise anything.
                raise ExportError(
                    f"{author_line(error)}{type(self.module).__name__} fails on a batch of "
                    f"{examples} examples: {error}{failure_remedy(error)}"
                ) from error
        return outputs if isinstance(outputs, dict) else {"score": outputs}

    def _dense(self, batch: Batch) -> Tensor:
        """A copy of the dense inputs after the transforms, since forward may write into it."""
        transformed: Tensor = DenseTransforms(self.program.schema)(batch.dense.clone())
        return transformed

    def _lists(self, batch: Batch) -> KeyedJaggedTensor:
        """The sparse input. Only the lengths of sequences matter, since lookups are replaced."""
        inputs = self.program.schema.sparse
        lists = {
            lookup.input.name: batch.looked_up.sequences[lookup.path, lookup.key].lengths()
            for lookup in self.program.layout.sequences
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
