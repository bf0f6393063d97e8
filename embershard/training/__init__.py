"""Training: configuration, the run itself, metrics and checkpoints."""

from embershard.training.checkpoint import (
    Checkpoint,
    check_state,
    latest_checkpoint,
    load_checkpoint,
    load_state,
)
from embershard.training.config import RunConfig, read_config
from embershard.training.dry_run_report import DryRun, dry_run
from embershard.training.mapped_tables import MappedTables
from embershard.training.metrics import (
    Evaluation,
    RegressionEvaluation,
    area_under_curve,
    evaluate_logits,
)
from embershard.training.progress import TrainingProgress, TrainingResult, TrainingStopped
from embershard.training.scorer import score
from embershard.training.trainer import train

__all__ = [
    "Checkpoint",
    "DryRun",
    "Evaluation",
    "MappedTables",
    "RegressionEvaluation",
    "RunConfig",
    "TrainingProgress",
    "TrainingResult",
    "TrainingStopped",
    "area_under_curve",
    "check_state",
    "dry_run",
    "evaluate_logits",
    "latest_checkpoint",
    "load_checkpoint",
    "load_state",
    "read_config",
    "score",
    "train",
]
