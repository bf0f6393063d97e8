"""Yambda's listens in its flat layout, with the tracks that each user had played before.

    copied    uid, timestamp, item_id, is_organic, track_length_seconds
    label     1 if at least half of the track was played
    history   the newest tracks with label 1 at a smaller timestamp, oldest first

The file is sorted by user and time, so that one pass over it is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from embershard.data.base import JaggedColumn, Progress
from embershard.data.converted import converted_folder, write_rows
from embershard.data.earlier import EarlierEvents
from embershard.data.parquet_columns import NeededColumn, Rows, column_kind, read_rows, row_keys
from embershard.data.parquet_files import SourceFile, file_state, footer_of

FILE: Final = "listens.parquet"
COPIED: Final = ("uid", "timestamp", "item_id", "is_organic", "track_length_seconds")
PLAYED: Final = "played_ratio_pct"
PLAYED_MIN: Final = 50
"""Percent of a track."""

HISTORY_ITEMS: Final = 50
BATCH_ROWS: Final = 131_072


def yambda_sections(
    path: Path, ids: Mapping[str, Any], cache: Path, progress: Progress | None
) -> dict[str, Any]:
    """Sections of the `ParquetConfig` that reads the listens, without the shares of the splits.
    ``path`` is the folder of ``listens.parquet``, or that file. ``ids`` has the keys of the
    sections of users and tracks. ``progress`` counts rows. Raises DataError for no file, columns of
    another layout, or rows in another order."""
    source = file_state(str(path / FILE if path.is_dir() else path))
    folder = converted_folder("yambda", [source], cache, lambda out: _write(source, out, progress))
    item = {**ids, "table": "item"}
    return {
        "files": [str(folder)],
        "split": {"by": "time", "column": "timestamp"},
        "dense": {
            "is_organic": {},
            "track_length_seconds": {"transforms": ["log1p", "standardize"]},
        },
        "sparse": {
            "uid": {**ids, "scope": "request"},
            "history": {**item, "scope": "request", "max_ids": HISTORY_ITEMS, "keep": "last"},
            "item_id": item,
        },
    }


class Histories:
    """Makes histories of rows that come in parts, sorted by user and time."""

    def __init__(self) -> None:
        self._events = np.empty((3, 0), np.int64)
        """Users, times and tracks of earlier rows that later histories may need."""

    def lists(
        self,
        users: NDArray[np.int64],
        times: NDArray[np.int64],
        items: NDArray[np.int64],
        played: NDArray[np.bool_],
    ) -> JaggedColumn:
        """The history of each of the next rows; all arguments ``[N]``, at least one row."""
        new = np.stack([users, times, items])[:, played]
        events = np.concatenate([self._events, new], axis=1)
        is_listed = np.ones(events.shape[1], np.bool_)
        lists = EarlierEvents(events[0], events[1], is_listed, events[2]).liked_before(
            users, times, limit=HISTORY_ITEMS
        )
        of_last_user = events[:, events[0] == users[-1]]
        same_time = int(
            (of_last_user[1] == times[-1]).sum()
        )  # The next row may have this time, too.
        self._events = of_last_user[:, -(HISTORY_ITEMS + same_time) :]
        return lists


def _write(source: SourceFile, folder: Path, progress: Progress | None) -> None:
    footer = footer_of(source)
    for name in (*COPIED, PLAYED):
        column_kind(source.path, footer.schema, NeededColumn(name, "key", "yambda"))
    copied = [footer.schema.field(name) for name in COPIED]
    made = [pa.field("label", pa.int8()), pa.field("history", pa.list_(pa.int64()))]
    write_rows(
        folder / FILE,
        pa.schema([*copied, *made]),
        _with_histories(source, progress),
        compression="zstd",  # Histories of adjacent rows differ by a track.
        use_dictionary=False,
    )


def _with_histories(source: SourceFile, progress: Progress | None) -> Iterator[pa.RecordBatch]:
    metadata = footer_of(source).metadata
    histories, last = Histories(), np.empty((2, 0), np.int64)
    first = 0
    for group in range(metadata.num_row_groups):
        columns = (*COPIED, PLAYED)
        for rows in read_rows(source, group, columns, first=first, rows_max=BATCH_ROWS):
            first += len(rows)
            if progress is not None:
                progress("making histories of rows", first, metadata.num_rows)
            users, times, items, ratios = (
                row_keys(rows, name) for name in ("uid", "timestamp", "item_id", PLAYED)
            )
            _check_order(rows, np.concatenate([last, [users, times]], axis=1))
            last = np.array([users[-1:], times[-1:]])
            played = ratios >= PLAYED_MIN
            values, offsets = histories.lists(users, times, items, played)
            made = {
                "label": pa.array(played.astype(np.int8)),
                "history": pa.ListArray.from_arrays(offsets.astype(np.int32), values),
            }
            copied = {name: rows.batch.column(name) for name in COPIED}
            yield pa.RecordBatch.from_pydict(copied | made)


def _check_order(rows: Rows, users_and_times: NDArray[np.int64]) -> None:
    """Refuses rows that are not sorted. The first column may belong to the row before them."""
    users, times = users_and_times
    is_earlier = (users[1:] == users[:-1]) & (times[1:] < times[:-1])
    wrong = np.flatnonzero(is_earlier | (users[1:] < users[:-1]))
    if len(wrong):
        place = int(wrong[0]) + 1
        row = place - (len(users) - len(rows))
        column = "timestamp" if is_earlier[place - 1] else "uid"
        values = users_and_times[int(column == "timestamp")]
        problem = (
            f"expected rows sorted by uid and timestamp, got {values[place]} after "
            f"{values[place - 1]}; sort the file"
        )
        raise rows.refusal(column, row, problem)
