"""A listen of Yambda has the history that was known before it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embershard.data import DataConfig, load_dataset, yambda
from embershard.errors import DataError
from tests.cases import cases, refused
from tests.data.small_parquet import lists_of


def listens(users, times, items, ratios, **columns):
    count = len(users)
    table = {
        "uid": pa.array(users, pa.uint32()),
        "timestamp": pa.array(times, pa.uint32()),
        "item_id": pa.array(items, pa.uint32()),
        "is_organic": pa.array([1] * count, pa.uint8()),
        "played_ratio_pct": pa.array(ratios, pa.uint16()),
        "track_length_seconds": pa.array([100 + row for row in range(count)], pa.uint32()),
    }
    return pa.table(table | columns)


def write(folder, table, row_group_size=None):
    folder.mkdir()
    pq.write_table(table, folder / "listens.parquet", row_group_size=row_group_size)
    return folder


def load(folder, tmp_path, **settings):
    config = DataConfig(name="yambda", path=folder, **settings)
    return load_dataset(config, cache=tmp_path / "cache")


def histories(data):
    """The item ids of each row's history."""
    (batch,) = data.train.batches(batch_size=10_000)
    ids = next(item.ids for item in data.schema.sparse if item.name == "item_id")
    id_of_row = dict(zip(ids.rows.tolist(), ids.keys.tolist(), strict=True))
    return [[id_of_row[row] for row in rows] for rows in lists_of(batch, "history")]


def test_a_history_has_tracks_played_by_half_before_the_event(tmp_path):
    table = listens(
        users=[1, 1, 1, 1, 1, 2],
        times=[10, 20, 20, 25, 30, 40],
        items=[5, 6, 7, 8, 9, 5],
        ratios=[50, 100, 120, 49, 0, 90],
    )
    data = load(write(tmp_path / "flat", table), tmp_path, valid=0.0, test=0.0)
    (batch,) = data.train.batches(batch_size=10)
    assert histories(data) == [[], [5], [5], [5, 6, 7], [5, 6, 7], []]
    assert batch.labels.tolist() == [1, 1, 1, 0, 0, 1]
    assert data.name == "yambda"
    assert [item.name for item in data.schema.dense] == ["is_organic", "track_length_seconds"]
    assert [item.name for item in data.schema.sparse] == ["uid", "history", "item_id"]


def plain_histories(table):
    """Histories by their definition, row by row."""
    names = ("uid", "timestamp", "item_id", "played_ratio_pct")
    rows = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    return [
        [
            item
            for other, earlier, item, ratio in rows
            if other == user and earlier < time and ratio >= 50
        ][-50:]
        for user, time, _, _ in rows
    ]


def test_histories_do_not_depend_on_parts_and_row_groups(tmp_path, monkeypatch):
    rng = np.random.default_rng(3)
    users = np.sort(rng.integers(0, 4, 600))
    times = rng.integers(0, 200, 600)  # Many times are equal.
    order = np.lexsort([times, users])
    table = listens(users, times[order], rng.integers(0, 90, 600), rng.integers(0, 101, 600))
    monkeypatch.setattr(yambda, "BATCH_ROWS", 7)
    data = load(write(tmp_path / "flat", table, row_group_size=50), tmp_path, valid=0.0, test=0.0)
    assert histories(data) == plain_histories(table)


def test_the_newest_listens_are_the_test_split(tmp_path):
    table = listens([1] * 5 + [2] * 5, [0, 2, 4, 6, 8, 1, 3, 5, 7, 9], range(10), [60, 20] * 5)
    data = load(write(tmp_path / "flat", table), tmp_path, valid=0.2, test=0.2)
    assert [len(split) for split in (data.train, data.valid, data.test)] == [6, 2, 2]
    (batch,) = data.test.batches(batch_size=10)
    assert [len(ids) for ids in lists_of(batch, "uid")] == [1, 1]


@cases(
    ("changes", "words"),
    {
        "time": ({"timestamp": [5, 4, 6]}, ["'timestamp'", "row 1", "4 after 5"]),
        "user": ({"uid": [3, 3, 1]}, ["'uid'", "row 2", "1 after 3"]),
        "null": ({"item_id": [1, None, 2]}, ["'item_id'", "row 1", "null"]),
        "type": ({"played_ratio_pct": [0.1, 0.2, 0.3]}, ["'played_ratio_pct'", "double"]),
    },
)
def test_rows_of_another_layout_are_refused(tmp_path, monkeypatch, changes, words):
    monkeypatch.setattr(yambda, "BATCH_ROWS", 1)
    table = listens([1, 1, 1], [1, 2, 3], [4, 5, 6], [9, 60, 9])
    for name, values in changes.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    with pytest.raises(DataError) as raised:
        load(write(tmp_path / "flat", table), tmp_path)
    assert all(word in str(raised.value) for word in words)
    assert not list((tmp_path / "cache/yambda").glob("*/"))


def test_a_folder_without_listens_is_refused(tmp_path):
    with refused(DataError, "listens.parquet"):
        load(tmp_path, tmp_path)
