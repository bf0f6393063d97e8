"""Data sets: Parquet files, examples in memory, MovieLens-100K, click logs of a known teacher."""

from embershard.data.base import Dataset, Examples, JaggedColumn, TableHint
from embershard.data.fetch import DEFAULT_CACHE, fetch_movielens
from embershard.data.movielens_requests import MovieLens, RankingRequest, load_movielens
from embershard.data.parquet_batches import ParquetBatches
from embershard.data.parquet_config import ParquetConfig
from embershard.data.random_batches import RandomRecDataset
from embershard.data.registry import (
    DATASETS,
    DataConfig,
    load_dataset,
    movielens_folder,
)
from embershard.data.requests import ClientRequest, client_requests, sample_requests
from embershard.data.row_batches import RowExamples, batches, to_rows
from embershard.data.splits import Batch, Split
from embershard.data.synthetic import (
    PlantedClickLog,
    PlantedInput,
    SyntheticConfig,
    planted_click_log,
)
from embershard.data.tasks import TaskConfig

__all__ = [
    "DATASETS",
    "DEFAULT_CACHE",
    "Batch",
    "ClientRequest",
    "DataConfig",
    "Dataset",
    "Examples",
    "JaggedColumn",
    "MovieLens",
    "ParquetBatches",
    "ParquetConfig",
    "PlantedClickLog",
    "PlantedInput",
    "RandomRecDataset",
    "RankingRequest",
    "RowExamples",
    "Split",
    "SyntheticConfig",
    "TableHint",
    "TaskConfig",
    "batches",
    "client_requests",
    "fetch_movielens",
    "load_dataset",
    "load_movielens",
    "movielens_folder",
    "planted_click_log",
    "sample_requests",
    "to_rows",
]
