"""A prepared data set of Parquet files: its splits, schema and tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embershard.data.base import Dataset, Progress
from embershard.data.parquet_config import SPLITS, ParquetConfig
from embershard.data.parquet_preparation import prepare
from embershard.data.parquet_schema import make_schema, make_tables
from embershard.data.parquet_split import ParquetSplit
from embershard.data.tasks import TaskConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetDataset(Dataset[ParquetSplit]):
    def digest(self) -> str:
        """SHA-256 of the configuration and of path, size and time of change of each file."""
        parts = self.train.prepared.digest, str(self.train.config.shuffle_rows)
        return hashlib.sha256("".join(parts).encode()).hexdigest()


def load_parquet_dataset(
    config: ParquetConfig,
    tasks: Mapping[str, TaskConfig],
    cache: Path,
    progress: Progress | None,
    name: str,
) -> ParquetDataset:
    """Prepare the files, unless the cache knows them; see `prepare`."""
    prepared = prepare(config, tasks, cache, progress)
    schema = make_schema(config, prepared.learned)
    train, valid, test = (
        ParquetSplit(config=config, tasks=tasks, prepared=prepared, schema=schema, name=split)
        for split in SPLITS
    )
    return ParquetDataset(
        name=name,
        schema=schema,
        train=train,
        valid=valid,
        test=test,
        tables=make_tables(config, prepared.learned.list_inputs),
    )
