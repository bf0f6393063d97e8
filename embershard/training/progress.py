"""What a run tells its caller: how far it is, and what it came to."""

from dataclasses import dataclass
from pathlib import Path

from embershard.planner import MeasuredRun
from embershard.training.metrics import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """How far a run is."""

    step: int
    steps_max: int
    """If it never stops early."""

    loss: float
    """Mean log loss of the latest batches, in nats."""

    examples_per_second: float
    """Since the start, evaluation included."""

    seconds_left: float
    """If it never stops early."""

    best_auc: float | None
    """On validation. None: not looked at yet."""

    stopped_early: bool = False
    """This was the last step, for want of a better validation AUC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """What a run came to."""

    checkpoint: Path
    """Of the step that was best on validation."""

    valid: Evaluation
    test: Evaluation
    best_step: int
    steps: int
    stopped_early: bool
    examples_per_second: float

    notes: tuple[str, ...] = ()
    """What resuming did to optimizer state of another plan, a line for each column range."""

    measured: MeasuredRun | None = None
    """On rank 0, of a run with ``sharding.plan = "auto"``: lookups and updates beside the plan's
    estimate."""
