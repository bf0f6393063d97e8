"""Progress and results of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embershard.errors import InputError
from embershard.planner import MeasuredRun
from embershard.training.metrics import Evaluation, TaskEvaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    step: int
    steps_max: int
    """Number of steps if the run does not stop early."""

    loss: float
    """Mean loss of the latest batches, for one ``bce`` task in nats."""

    examples_per_second: float
    """Mean since the start, evaluation included."""

    seconds_left: float
    """Estimate of the time left if the run does not stop early."""

    best_auc: float | None
    """Best mean AUC of the tasks on validation; None before it is known, or if no task has one."""

    stopped_early: bool = False
    """This was the last step, because validation did not get better."""


class TrainingStopped(KeyboardInterrupt):
    """``stop`` of ``train`` returned true. The message says where the run's state is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    checkpoint: Path
    """Checkpoint of the step that was best on validation, or of the last step without a validation
    split."""

    valid_tasks: Mapping[str, TaskEvaluation]
    """Evaluation of each task on the validation split, with the best weights. Empty without such a
    split."""

    test_tasks: Mapping[str, TaskEvaluation]
    """Evaluation of each task on the test split, with the best weights; empty without one."""

    best_step: int
    steps: int
    stopped_early: bool
    examples_per_second: float

    notes: tuple[str, ...] = ()
    """Changes to optimizer state that another plan saved, a line for each column range."""

    measured: MeasuredRun | None = None
    """Measured seconds of lookups and updates beside the plan's estimate. None without
    ``sharding.plan = "auto"``, and on other ranks than 0."""

    @property
    def valid(self) -> Evaluation:
        """Evaluation of the first ``bce`` task on the validation split."""
        return _first(self.valid_tasks)

    @property
    def test(self) -> Evaluation:
        """Evaluation of the first ``bce`` task on the test split."""
        return _first(self.test_tasks)


def _first(evaluations: Mapping[str, TaskEvaluation]) -> Evaluation:
    for evaluation in evaluations.values():
        if isinstance(evaluation, Evaluation):
            return evaluation
    raise InputError(f"result: expected a task with the loss 'bce', got {list(evaluations)}")
