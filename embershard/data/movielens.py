"""MovieLens-100K as ratings with features that know no future.

label      1 for a like, which is a rating of at least 4
request    equal for ratings of one user and second
row        number of the rating in the order of time
features   see `embershard.data.movielens_features`; strings are their XXH3-64
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embershard.data.base import Progress
from embershard.data.converted import converted_folder
from embershard.data.movielens_features import DENSE, HISTORY_ITEMS, SPARSE, MovieLensFeatures
from embershard.data.movielens_files import movielens_files, read_movielens_files
from embershard.data.parquet_files import file_state

LISTS: Final = ("history", "genres")
GROUP_ROWS: Final = 10_000
"""A tenth of the ratings, so that no row group has rows of two splits."""


def movielens_sections(
    path: Path, ids: Mapping[str, Any], cache: Path, _: Progress | None
) -> dict[str, Any]:
    """Sections of the `ParquetConfig` that reads the ratings, without the shares of the splits.
    ``path`` has one of the layouts in `embershard.data.movielens_files`. ``ids`` has the keys of
    each sparse input's section. Raises DataError for a file that is missing or cannot be read, with
    line and column."""
    sources = [file_state(str(file)) for file in movielens_files(path)]
    folder = converted_folder("movielens", sources, cache, lambda out: _write(path, out))
    sparse = {name: {**ids, "scope": scope, "unknown": "zero"} for name, scope in SPARSE.items()}
    sparse["history"] |= {"vocabulary": "item", "max_ids": HISTORY_ITEMS, "keep": "last"}
    return {
        "files": [str(folder)],
        "request": "request",
        "split": {"by": "time", "column": "row"},
        "dense": {
            name: {"scope": scope, "transforms": ["standardize"]} for name, scope in DENSE.items()
        },
        "sparse": sparse,
    }


def _write(path: Path, folder: Path) -> None:
    log = read_movielens_files(path)
    features = MovieLensFeatures(log)
    raw = features.at(log.users, log.items, log.timestamps)
    columns: dict[str, Any] = {
        "label": features.liked,
        "request": log.request_numbers,
        "row": np.arange(len(log)),
        **dict(zip(DENSE, raw.dense.T, strict=True)),
    }
    for name, (values, offsets) in raw.sparse.items():
        columns[name] = values
        if name in LISTS:
            columns[name] = pa.ListArray.from_arrays(offsets.astype(np.int32), values)
    pq.write_table(pa.table(columns), folder / "ratings.parquet", row_group_size=GROUP_ROWS)
