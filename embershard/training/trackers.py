"""The trackers of a run: TensorBoard and MLflow, as ``[tracking]`` says."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path

from embershard.tracking.mlflow import MlflowRun
from embershard.tracking.tensorboard import TensorBoardFolder
from embershard.tracking.thread import TrackerThread
from embershard.training.config import RunConfig


def start_trackers(config: RunConfig, folder: Path, first_step: int) -> list[TrackerThread]:
    """The trackers of a run that resumes after ``first_step``; 0 starts from scratch."""
    tracking, trackers = config.tracking, list[TrackerThread]()
    if tracking.tensorboard is not None:
        events = Path(tracking.tensorboard).expanduser()
        connect = partial(TensorBoardFolder, events, first_step)
        trackers.append(TrackerThread(f"TensorBoard in {events}", connect))
    if tracking.mlflow is not None:
        sections = config.model_dump(mode="json", by_alias=True, include={"model", "training"})
        run = partial(
            MlflowRun,
            tracking.mlflow,
            experiment=tracking.experiment,
            name=tracking.run or folder.name,
            folder=folder,
            resumed=first_step > 0,
            params={
                f"{name}.{key}": value
                for name, section in sections.items()
                for key, value in section.items()
            },
        )
        trackers.append(TrackerThread(f"MLflow at {tracking.mlflow}", run))
    return trackers


def check_tracking(config: RunConfig) -> None:
    """Refuse a tracker that is not installed, and keys without effect; raises ConfigError."""
    tracking = config.tracking
    for name in ("tensorboard", "mlflow"):
        if getattr(tracking, name) is not None and find_spec(name) is None:
            problem = f"expected the package {name}, got none: pip install 'embershard[{name}]'"
            raise config.refusal("tracking", name, problem=problem)
    for name in ("experiment", "run"):
        if name in tracking.model_fields_set and tracking.mlflow is None:
            raise config.refusal("tracking", name, problem="expected mlflow with it, got none")
