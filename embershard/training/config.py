"""The configuration of a training run: one TOML file, read strictly. docs/configuration.md has its
keys."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    PlainValidator,
    PrivateAttr,
    SerializeAsAny,
    Tag,
    ValidationError,
    field_validator,
)

from embershard.data.parquet_config import ParquetConfig
from embershard.data.registry import DataConfig
from embershard.data.tasks import DEFAULT_TASKS, TaskConfig
from embershard.errors import ConfigError, InputError, PackageError
from embershard.models import MODEL_CONFIGS, ClassConfig, DLRMConfig, ModelConfig
from embershard.models.own_class import OwnClassError
from embershard.models.registry import config_class, parse_config
from embershard.package.names import NAME_PATTERN, PATTERN_WORDS
from embershard.sections import Section, problem_of

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


DATA_CONFIGS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {"built-in": DataConfig, "parquet": ParquetConfig}
)


def _data_kind(section: object) -> str:
    """Tag of the class that reads ``[data]``. That of built-in data refuses unknown names."""
    name = section.get("name") if isinstance(section, dict) else getattr(section, "name", None)
    return "parquet" if name == "parquet" else "built-in"


class TrainingConfig(Section):
    """Settings of the optimizers and of the steps."""

    batch_size: Annotated[int, Field(ge=1, lt=1 << 31)] = 512
    """Number of examples of a step on all ranks. With request rows, the largest number of
    candidates."""

    epochs: Positive = 10
    """Largest number of passes over the training split. Early stopping usually ends sooner."""

    table_optimizer: Literal["rowwise_adagrad", "sgd"] = "rowwise_adagrad"
    """Optimizer of the embedding tables, which runs in their backward pass."""

    table_learning_rate: Rate = 0.01
    """Learning rate of the embedding tables."""

    dense_optimizer: Literal["adagrad", "adam", "sgd"] = "adagrad"
    """Optimizer of the dense part, which is all but the tables."""

    dense_learning_rate: Rate = 0.02
    """Learning rate of the dense part."""

    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Number of steps in which both learning rates rise linearly to their values. 0: none."""

    warmup_start: Annotated[float, Field(gt=0, le=1)] = 0.1
    """With ``warmup_steps``: factor of the learning rates in the first step."""

    decay: Literal["linear", "cosine"] | None = None
    """Curve by which both learning rates fall after the warm-up, over the steps of all epochs.
    Without it they stay constant."""

    decay_end: Annotated[float, Field(ge=0, le=1)] = 0.0
    """With ``decay``: factor of the learning rates after the last step."""

    clip_norm: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Largest norm of the dense part's gradients, taken together. Longer ones are scaled down to
    it. 0: no limit."""

    dense_dtype: Literal["fp32", "bf16"] = "fp32"
    """With ``bf16`` the dense part trains under torch's autocast. Weights, evaluation and export
    stay fp32."""

    count_accesses: bool = False
    """Count lookups of each row and keep them in checkpoints, 8 bytes a row, so that
    ``embershard export --min-accesses`` can leave out seldom used rows."""

    id_dropout: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default={})
    """Share of a sparse input's ids that training treats as unknown, by input, so that the model
    learns to do without them. Useful for inputs whose ids are mostly new when served."""

    evaluate_every_steps: Positive = 40
    """Steps between evaluations on the validation split."""

    patience: Positive = 8
    """Evaluations without a better result before training stops. The result is the mean AUC of the
    tasks with the loss ``bce``; without such tasks, the negative loss."""

    rank_at: Positive = 10
    """Number of a request's highest scores that NDCG and recall count."""

    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    """Seed of initial weights, order of examples and id dropout."""

    threads: Annotated[int, Field(ge=0, le=1024)] = 0
    """Threads of torch in each process. 0: one for each core. Small models are faster with 1,
    especially if other work shares the machine."""


class CheckpointConfig(Section):
    """The folder of a run and the checkpoints in it."""

    folder: Annotated[str, Field(min_length=1)]
    """Folder of the run. Its best checkpoint is kept there, in a folder named after the step. An
    unfinished run with the same settings and data is resumed. Checkpoints of any other run are
    refused without ``--overwrite``."""

    last_every_steps: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints to resume from, in ``<folder>/last``. They hold weights, optimizer
    state and progress. 0: only when Ctrl-C or SIGTERM ends the run."""

    keep_last: Positive = 2
    """Number of checkpoints in ``<folder>/last`` that are kept."""


Cut = Literal[
    "data_parallel",
    "table_wise",
    "row_wise",
    "column_wise",
    "table_row_wise",
    "table_column_wise",
    "grid_shard",
]


AUTO = "auto"


class ShardingConfig(Section):
    """Sharding of tables over the ranks that torchrun starts. One process checks and ignores it."""

    tables: dict[str, Cut] = Field(default={"*": "table_wise"})
    """Sharding type by pattern of table names. The first pattern that matches counts."""

    plan: str | None = None
    """Instead of ``tables``: a file that ``ShardingPlan.save`` wrote, or ``auto`` for a plan from
    measured costs and the training split's lookups."""

    machine: str | None = None
    """With ``plan = "auto"``: a file that ``embershard calibrate`` wrote. Without it, the default
    costs."""

    memory_bytes: Annotated[int, Field(ge=0)] = 0
    """With ``plan = "auto"``: memory of a rank in bytes. 0: the memory of rank 0's host divided by
    its ranks; on a GPU, its free memory."""


class TrackingConfig(Section):
    """Trackers to which rank 0 logs losses, learning rates and metrics.
    [Track a run](training.md#track-a-run) says more."""

    tensorboard: Annotated[str, Field(min_length=1)] | None = None
    """Folder for TensorBoard's event files. Needs ``pip install 'embershard[tensorboard]'``."""

    mlflow: Annotated[str, Field(min_length=1)] | None = None
    """Tracking URI of an MLflow server or store. Needs ``pip install 'embershard[mlflow]'``."""

    experiment: Annotated[str, Field(min_length=1)] = "embershard"
    """With ``mlflow``: name of the experiment, made if it is not there."""

    run: Annotated[str, Field(min_length=1)] | None = None
    """With ``mlflow``: name of the run. Without it the name of the checkpoint folder."""

    every_steps: Positive = 10
    """Steps between two logs of loss and learning rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: Path
    text: str

    def where(self, names: Sequence[str]) -> str:
        """``<file>:<line>: key '<names>'``, the start of a message."""
        return f"{self.path}:{self._line_of(names)}: key {'.'.join(names)!r}"

    def _line_of(self, names: Sequence[str]) -> int:
        """Line of the innermost part of a key that is in the file, from 1."""
        section, line_of_section = "", 1
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                section = header[1]
                if section == ".".join(names[: section.count(".") + 1]):
                    line_of_section = number
            elif assignment := re.match(r"\s*([A-Za-z0-9_.\-\"']+)\s*=", line):
                key = assignment[1].strip("\"'")
                full = f"{section}.{key}" if section else key
                if full == ".".join(names[: full.count(".") + 1]):
                    return number
        return line_of_section


class RunConfig(Section):
    data: Annotated[
        Annotated[DataConfig, Tag("built-in")] | Annotated[ParquetConfig, Tag("parquet")],
        Discriminator(_data_kind),
    ]
    model: Annotated[SerializeAsAny[ModelConfig], PlainValidator(parse_config)] = DLRMConfig()
    tasks: dict[str, TaskConfig] = Field(default=dict(DEFAULT_TASKS))
    training: TrainingConfig = TrainingConfig()
    checkpoint: CheckpointConfig
    sharding: ShardingConfig = ShardingConfig()
    tracking: TrackingConfig = TrackingConfig()
    _file: _File | None = PrivateAttr(default=None)

    @field_validator("tasks")
    @classmethod
    def _names_outputs(cls, tasks: dict[str, TaskConfig]) -> dict[str, TaskConfig]:
        wrong = [name for name in tasks if not re.fullmatch(NAME_PATTERN, name)]
        if wrong or not tasks:
            words = PATTERN_WORDS[NAME_PATTERN]
            raise ValueError(f"expected sections [tasks.NAME], each NAME of {words}")
        return tasks

    def check_model(self) -> None:
        """Import a class of the user's own and check its arguments; raises ConfigError."""
        if isinstance(self.model, ClassConfig):
            with self.refusing("model"):
                self.model.check()

    def refusal(self, *key: str, problem: str) -> ConfigError:
        """The error to raise for a value that does not fit other settings or the data. ``problem``
        is "expected ..., got ..."."""
        where = f"key {'.'.join(key)!r}" if self._file is None else self._file.where(key)
        return ConfigError(f"{where}: {problem}")

    @contextmanager
    def refusing(self, *key: str, what: str = "") -> Iterator[None]:
        """Raise bad input in the block as a ``refusal`` of a key, whose problem starts with
        ``what``. A ConfigError stays as it is. For an OwnClassError, ``key`` is that of its
        section."""
        try:
            yield
        except ConfigError:
            raise
        except (InputError, PackageError) as error:
            inner = [error.key] if isinstance(error, OwnClassError) else []
            raise self.refusal(*key, *inner, problem=f"{what}{error}") from error


def read_config(path: Path) -> RunConfig:
    """Read a run's TOML file. Raises ConfigError, with the line, if it cannot be read, is not TOML,
    or has an unknown, missing or wrong key."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: expected a TOML file in UTF-8, got {error}") from error
    file = _File(path=path, text=text)
    try:
        document = tomllib.loads(text)
        config = RunConfig.model_validate(document)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"at line (\d+)", str(error))
        line = match[1] if match else len(text.splitlines())  # "at end of document"
        raise ConfigError(f"{path}:{line}: expected TOML, got: {error}") from error
    except ValidationError as error:
        problems = error.errors()
        # The name of the data decides which other keys are known. A misspelled key often leaves
        # another one missing; the misspelled one says more.
        names = [problem for problem in problems if problem["loc"][::2] == ("data", "name")]
        unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
        raise ConfigError(_problem(file, document, [*names, *unknown, *problems][0])) from error
    except RecursionError as error:
        raise ConfigError(f"{path}: expected TOML, got too many nested levels") from error
    except ValueError as error:  # Python limits the digits of an integer.
        raise ConfigError(f"{path}: expected TOML, got a number with too many digits") from error
    config._file = file
    return config


def _problem(file: _File, document: Mapping[str, Any], error: ErrorDetails) -> str:
    """ "<file>:<line>: key '<key>': expected ..., got ..."."""
    names = [str(part) for part in error["loc"]]
    kind = names.pop(1) if names[0] == "data" and len(names) > 1 else ""
    where = file.where(names)
    if error["type"] == "extra_forbidden":
        classes = {"data": DATA_CONFIGS.get(kind), "model": config_class(document.get("model"))}
        known = _known_keys(names[:-1], classes)
        close = difflib.get_close_matches(names[-1], known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return f"{where}: expected one of {', '.join(known)}{hint}"
    if names == ["model", "name"] and error["type"] != "missing":
        return f"{where}: expected one of {', '.join(MODEL_CONFIGS)}, got {error['input']!r}"
    problem = problem_of(error)
    if names == ["sharding", "tables", "plan"]:
        problem = f"'plan' belongs under [sharding], before [sharding.tables]; here {problem}"
    return f"{where}: {problem}"


def _known_keys(section: list[str], classes: Mapping[str, Any]) -> list[str]:
    """The keys of a section. ``classes`` has the class that reads each section with several."""
    model: Any = RunConfig
    for depth, name in enumerate(section):
        if depth == 0 and name in classes:
            model = classes[name]
        elif get_origin(model) is dict:
            model = get_args(model)[1]
        else:
            model = model.model_fields[name].annotation
    return list(model.model_fields)
