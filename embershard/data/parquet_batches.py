"""Parquet files as a data set, and as batches for any training loop. pyarrow is imported when one
of them is made, because the rest of the library does not need it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from embershard.data.base import Progress, TableHint
from embershard.data.fetch import cache_folder
from embershard.data.parquet_config import ParquetConfig
from embershard.data.splits import Batch, check_batch_size, check_part
from embershard.data.tasks import TaskConfig
from embershard.errors import InputError
from embershard.package.schema import Schema

if TYPE_CHECKING:
    from embershard.data.parquet_dataset import ParquetDataset


class ParquetBatches:
    """Batches of one split of Parquet files, read ahead on threads. Each iteration is the same
    pass; make another one with another ``shuffle_seed`` for the next epoch.

    ::

        from pathlib import Path

        import pyarrow as pa
        import pyarrow.parquet as pq
        from embershard.data import ParquetBatches, ParquetConfig, TaskConfig

        clicks = {"user": ["u-81", "u-81", "u-7"], "item": [1101, 1205, 99], "clicked": [1, 0, 1]}
        pq.write_table(pa.table(clicks), "clicks.parquet")
        config = ParquetConfig.model_validate(
            {
                "name": "parquet",
                "files": ["clicks.parquet"],
                "split": {"by": "hash", "column": "user", "valid": 0.0, "test": 0.0},
                "sparse": {"user": {}, "item": {}},
            }
        )
        tasks = {"click": TaskConfig(label="clicked")}
        for batch in ParquetBatches(config, tasks, batch_size=2, cache=Path("cache")):
            users = batch.sparse["user"].values()  # Rows of the table "user".

    Args:
        config: the section ``[data]`` of a run's file; docs/data.md explains it.
        tasks: the sections ``[tasks]``; each needs a label.
        split: ``train``, ``valid`` or ``test``.
        batch_size: rows of a batch of all ranks together, at least 1.
        shuffle_seed: seed of the order of rows; None keeps the order of the files.
        rank: number of this process among those that train together. It gets its part of each
            batch, maybe no rows.
        world_size: number of those processes.
        first: number of batches to skip, because a resumed run has trained on them.
        cache: folder that keeps the result of the first pass over the files; see docs/data.md.
            None: the folder that ``EMBERSHARD_CACHE`` names, or ``~/.cache/embershard``.

    Raises:
        InputError: arguments out of range, a task without label, or no pyarrow.
        DataError: files or values that the configuration does not take.
    """

    def __init__(
        self,
        config: ParquetConfig,
        tasks: Mapping[str, TaskConfig],
        split: Literal["train", "valid", "test"] = "train",
        *,
        batch_size: int,
        shuffle_seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        first: int = 0,
        cache: Path | None = None,
    ) -> None:
        if split not in ("train", "valid", "test"):
            raise InputError(f"split: expected train, valid or test, got {split!r}")
        check_batch_size(batch_size)
        check_part(rank, world_size, first)
        dataset = load_parquet(config, tasks, cache_folder(cache))
        self._split = getattr(dataset, split)
        self.tables: tuple[TableHint, ...] = dataset.tables
        """Tables that suit the sparse inputs."""
        self._arguments = {
            "batch_size": batch_size,
            "shuffle_seed": shuffle_seed,
            "rank": rank,
            "world_size": world_size,
            "first": first,
        }

    @property
    def schema(self) -> Schema:
        schema: Schema = self._split.schema
        return schema

    def __len__(self) -> int:
        """Rows of the split, of all ranks together."""
        return len(self._split)

    def __iter__(self) -> Iterator[Batch]:
        batches: Iterator[Batch] = self._split.batches(**self._arguments)
        return batches


def load_parquet(
    config: ParquetConfig,
    tasks: Mapping[str, TaskConfig],
    cache: Path,
    progress: Progress | None = None,
    name: str = "parquet",
) -> ParquetDataset:
    """The data set, prepared. Raises InputError for a task without label, or without pyarrow;
    DataError for files or values that the configuration does not take."""
    if without := [name for name, task in tasks.items() if task.label is None]:
        raise InputError(f"tasks.{without[0]}: expected label, the column of its labels, got none")
    check_pyarrow(name)
    from embershard.data.parquet_dataset import load_parquet_dataset

    return load_parquet_dataset(config, tasks, cache, progress, name)


def check_pyarrow(name: str) -> None:
    """Raises InputError if the data set ``name`` cannot be read because pyarrow is missing."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"data set {name!r}: expected pyarrow, found none; pip install 'embershard[parquet]'"
        ) from error
