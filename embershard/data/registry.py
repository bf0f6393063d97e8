"""Data sets by their names in a configuration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from embershard.data.base import Dataset, Progress
from embershard.data.fetch import cache_folder, fetch_movielens
from embershard.data.parquet_batches import check_pyarrow, load_parquet
from embershard.data.parquet_config import ParquetConfig, Share, check_shares
from embershard.data.synthetic import (
    CRITEO_DENSE,
    CRITEO_INPUTS,
    EXAMPLES_MIN,
    SyntheticConfig,
    planted_click_log,
)
from embershard.data.tasks import DEFAULT_TASKS, TaskConfig
from embershard.errors import InputError
from embershard.package.id_maps import MAX_ROWS
from embershard.sections import Section

LABEL: Final = "label"
"""Column of the labels of built-in data in Parquet files."""


class DataConfig(Section):
    """Name and source of a built-in data set; the section ``[data]`` of a run's file.

    A setting that the named data set does not have is refused.
    """

    name: str
    """``movielens``, ``criteo``, ``yambda``, ``synthetic`` or ``synthetic_criteo``."""

    path: Annotated[Path, Field(strict=False)] | None = None
    """movielens: its folder. Without it a copy in the folder ``$EMBERSHARD_CACHE`` (unset:
    ``~/.cache/embershard``), fetched if needed. criteo: a file of tab-separated lines, or a folder
    of them, maybe compressed by gzip. yambda: the folder with ``listens.parquet``."""

    examples: Annotated[int, Field(ge=EXAMPLES_MIN)] | None = None
    """synthetic, synthetic_criteo: number of examples. Without it a million."""

    seed: Annotated[int, Field(ge=0)] | None = None
    """synthetic, synthetic_criteo: seed of the data. Without it 0."""

    valid: Share | None = None
    """criteo, yambda: share of rows in the validation split. Without it 0.1."""

    test: Share | None = None
    """criteo, yambda: share of rows in the test split, the last ones. Without it 0.1."""

    min_count: Annotated[int, Field(ge=1)] | None = None
    """criteo, yambda: ids that the training split has less often share a row. Without it 1."""

    buckets: Annotated[int, Field(ge=1, le=MAX_ROWS)] | None = None
    """criteo, yambda: rows of each table, chosen by the hash of an id. Without it each id of the
    training split has a row."""

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in DATASETS:
            raise ValueError(f"expected one of {', '.join((*DATASETS, 'parquet'))}")
        return name

    @field_validator(
        "path", "examples", "seed", "valid", "test", "min_count", "buckets", mode="before"
    )
    @classmethod
    def _is_of_this_data_set(cls, value: object, info: ValidationInfo) -> object:
        name: str | None = info.data.get("name")  # Missing if the name was refused.
        if value is not None and name and info.field_name not in DATASETS[name].keys:
            raise ValueError(f"expected none for {name}")
        return value

    @field_validator("buckets")
    @classmethod
    def _is_alone(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("min_count") is not None:
            raise ValueError("expected none with min_count, which is for ids with their own rows")
        return value

    @model_validator(mode="after")
    def _leave_rows_to_train(self) -> Self:
        check_shares(self)
        return self

    def at(self, path: Path) -> DataConfig:
        """The same data set, read from another folder. Raises InputError if it has no folder."""
        if "path" not in DATASETS[self.name].keys:
            raise InputError(f"data set {self.name!r}: expected no folder, got {path}")
        return self.model_copy(update={"path": path})


def load_dataset(
    config: DataConfig | ParquetConfig,
    *,
    tasks: Mapping[str, TaskConfig] = DEFAULT_TASKS,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Dataset[Any]:
    """Load the data set that ``config`` names. Built-in data sets have labels for one task.
    ``cache`` keeps fetched and prepared data; None stands for the folder that ``EMBERSHARD_CACHE``
    names, or ``~/.cache/embershard``. ``progress`` is called while files are read for the first
    time, maybe on another thread, with the step, its units that are done, and all of its units.

    Raises InputError for settings that make no data set, or tasks without labels in it; DataError
    if its files cannot be fetched or read.
    """
    cache = cache_folder(cache)
    if isinstance(config, ParquetConfig):
        return load_parquet(config, tasks, cache, progress)
    _check_tasks(config, tasks)
    return DATASETS[config.name].load(config, tasks, cache, progress)


def _check_tasks(config: DataConfig, tasks: Mapping[str, TaskConfig]) -> None:
    """The built-in data sets have one label, which has no column name."""
    columns = [name for name, task in tasks.items() if task.label or task.mask]
    if len(tasks) != 1 or columns:
        raise InputError(
            f"data set {config.name!r}: expected one task without label and mask, "
            f"got tasks {list(tasks)} with columns for {columns}"
        )


def movielens_folder(path: Path | None, cache: Path | None = None) -> Path:
    """The folder of MovieLens-100K: ``path``, or the cache, into which it is fetched if needed."""
    if path is not None:
        return path.expanduser()
    return fetch_movielens(cache_folder(cache) / "movielens-100k")


class _Source(NamedTuple):
    load: Callable[[DataConfig, Mapping[str, TaskConfig], Path, Progress | None], Dataset[Any]]
    keys: frozenset[str]
    """Keys of `DataConfig` that this data set has."""


def _synthetic(config: DataConfig, *_: object) -> Dataset[Any]:
    settings = config.model_dump(include={"examples", "seed"}, exclude_none=True)
    if config.name == "synthetic_criteo":
        settings |= {
            "inputs": CRITEO_INPUTS,
            "request_dense": 0,
            "example_dense": CRITEO_DENSE,
        }
    return replace(planted_click_log(SyntheticConfig(**settings)).dataset, name=config.name)


def _from_files(
    config: DataConfig,
    tasks: Mapping[str, TaskConfig],
    cache: Path,
    progress: Progress | None,
) -> Dataset[Any]:
    """A data set of files, which become Parquet files first."""
    check_pyarrow(config.name)
    from embershard.data.criteo import criteo_sections
    from embershard.data.movielens import movielens_sections
    from embershard.data.yambda import yambda_sections

    path = movielens_folder(config.path, cache) if config.name == "movielens" else config.path
    if path is None:
        raise InputError(f"data set {config.name!r}: expected data.path, where it lies, got none")
    make_sections = {
        "criteo": criteo_sections,
        "movielens": movielens_sections,
        "yambda": yambda_sections,
    }[config.name]
    ids = config.model_dump(include={"min_count", "buckets"}, exclude_none=True)
    if "buckets" in ids:
        ids["ids"] = "hash"
    sections = make_sections(path.expanduser(), ids, cache, progress)
    sections["split"] |= config.model_dump(include={"valid", "test"}, exclude_none=True)
    labelled = {name: task.model_copy(update={"label": LABEL}) for name, task in tasks.items()}
    parquet = ParquetConfig.model_validate({"name": "parquet", **sections})
    return load_parquet(parquet, labelled, cache, progress, config.name)


FILE_KEYS: Final = frozenset({"path", "valid", "test", "min_count", "buckets"})

DATASETS: Mapping[str, _Source] = MappingProxyType(
    {
        "movielens": _Source(_from_files, frozenset({"path"})),
        "criteo": _Source(_from_files, FILE_KEYS),
        "yambda": _Source(_from_files, FILE_KEYS),
        "synthetic": _Source(_synthetic, frozenset({"examples", "seed"})),
        "synthetic_criteo": _Source(_synthetic, frozenset({"examples", "seed"})),
    }
)
