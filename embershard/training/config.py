"""What a training run is told: one TOML file, read strictly.

[data]
name = "movielens"            # or "synthetic"

[model]
name = "dlrm"
embedding_dim = 16
dense_layers = [32, 16]
over_layers = [64, 32, 1]

[training]
batch_size = 512

[checkpoint]
folder = "checkpoints/movielens"
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from embershard.errors import ConfigError

__all__ = [
    "CheckpointConfig",
    "DataSection",
    "ModelConfig",
    "RunConfig",
    "TrainingConfig",
    "read_config",
]

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """Base of every section: an unknown key is an error, nothing changes once it is read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DataSection(Section):
    """Where examples come from."""

    name: str
    """``movielens`` or ``synthetic``."""

    path: str | None = None
    """movielens: the folder that holds it. Left out: a cached copy, fetched if needed."""

    rows: Positive | None = None
    """synthetic: examples to make. Left out: a million."""

    seed: int | None = None
    """synthetic: of the data. Left out: 0."""


class ModelConfig(Section):
    """Which model, and how large."""

    name: Literal["dlrm"] = "dlrm"

    embedding_dim: Positive = 16
    """Of every table; a multiple of 4."""

    dense_layers: tuple[Positive, ...] = (32, 16)
    """Layers over the dense inputs; the last is as wide as ``embedding_dim``."""

    over_layers: tuple[Positive, ...] = (64, 32, 1)
    """Layers over the interactions; the last is 1 wide."""

    @field_validator("dense_layers", "over_layers", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class TrainingConfig(Section):
    """How weights are found."""

    batch_size: Positive = 512
    """Examples a step."""

    epochs: Positive = 10
    """Most passes over the training split; early stopping usually ends sooner."""

    table_optimizer: Literal["rowwise_adagrad", "sgd"] = "rowwise_adagrad"
    """Of the embedding tables, inside their backward pass."""

    table_learning_rate: Rate = 0.01

    dense_optimizer: Literal["adagrad", "adam", "sgd"] = "adagrad"
    """Of everything else."""

    dense_learning_rate: Rate = 0.02

    id_dropout: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}
    """Per sparse input, the share of its ids that training treats as unknown, so that the model
    learns to do without them. For inputs whose ids are mostly new when served."""

    evaluate_every_steps: Positive = 40
    """Steps between looks at the validation split."""

    patience: Positive = 8
    """Looks without a better validation AUC before training stops."""

    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """Of initial weights, order and dropout. Same seed, same numbers."""

    threads: Annotated[int, Field(ge=0)] = 0
    """Of torch, for the whole process. 0: as torch chooses, which is one a core. Small models are
    quicker with 1, and far quicker where other work shares the machine."""


class CheckpointConfig(Section):
    """Where the best weights are kept."""

    folder: str
    """Gets one folder a checkpoint, named after its step. Only the best is kept."""


class RunConfig(Section):
    """A whole training run."""

    data: DataSection
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    checkpoint: CheckpointConfig


def read_config(path: Path) -> RunConfig:
    """Read a run's TOML file.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has an unknown, missing or wrong
            key; with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected a TOML file in UTF-8, got {error}") from error
    try:
        return RunConfig.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: expected TOML, got {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(_message(path, text, first["loc"], first["msg"], first)) from error


def _message(
    path: Path, text: str, where: tuple[int | str, ...], problem: str, error: object
) -> str:
    names = [str(part) for part in where]
    got = error.get("input") if isinstance(error, dict) else None
    kind = error.get("type") if isinstance(error, dict) else None
    key = ".".join(names)
    line = _line_of(text, names)
    if kind == "extra_forbidden":
        known = ", ".join(_known_keys(names[:-1]))
        return f"{path}:{line}: key {key!r}: expected one of {known}"
    if kind == "missing":
        return f"{path}:{line}: key {key!r}: expected a value, got none"
    return f"{path}:{line}: key {key!r}: {problem[0].lower()}{problem[1:]}, got {got!r}"


def _known_keys(section: list[str]) -> list[str]:
    model: type[BaseModel] = RunConfig
    for name in section:
        annotation = model.model_fields[name].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        model = annotation
    return list(model.model_fields)


def _line_of(text: str, names: list[str]) -> int:
    """Line of the innermost part of a key that stands in the file, from 1."""
    section, found = "", 1
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            section = header[1]
            if section == ".".join(names[: section.count(".") + 1]):
                found = number
        elif assignment := re.match(r"\s*([A-Za-z0-9_.\-\"']+)\s*=", line):
            key = assignment[1].strip("\"'")
            full = f"{section}.{key}" if section else key
            if full == ".".join(names[: full.count(".") + 1]):
                return number
    return found
