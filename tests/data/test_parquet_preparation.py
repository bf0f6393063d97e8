"""One pass over the files finds splits, vocabularies and moments, which a cache keeps."""

import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embershard.data import (
    load_dataset,
    parquet_preparation,
    parquet_rule,
    parquet_statistics,
)
from embershard.data.parquet_files import find_files
from embershard.data.parquet_statistics import IdCounts, Moments
from embershard.errors import DataError, InputError
from embershard.ids import hash_string
from embershard.package.id_maps import Hash
from embershard.package.transforms import Bucketize, Clip, Log1p, Standardize
from tests.cases import cases, refused
from tests.data.small_parquet import CLICK, config, load, row_numbers, table, write


def rows_of_splits(dataset):
    splits = (dataset.train, dataset.valid, dataset.test)
    return [row_numbers(split.batches(batch_size=100)) for split in splits]


def test_a_split_by_time_tests_on_the_newest_rows(tmp_path):
    times = np.random.default_rng(0).permutation(100)
    files = write(tmp_path / "files", table(100, time=pa.array(times)), row_group_size=30)
    train, valid, test = rows_of_splits(
        load(files, split={"by": "time", "column": "time", "valid": 0.2, "test": 0.1})
    )
    assert sorted(times[train]) == list(range(70))
    assert sorted(times[valid]) == list(range(70, 90))
    assert sorted(times[test]) == list(range(90, 100))


@cases(
    "times",
    {
        "seconds": pa.array(np.arange(100), pa.timestamp("s")),
        "nanoseconds": pa.array(np.arange(100) * 1000, pa.timestamp("ns", "UTC")),
        "days": pa.array(np.arange(100, dtype=np.int32), pa.date32()),
        "floats": pa.array(np.arange(100) / 1000),
        "unsigned": pa.array(np.arange(100, dtype=np.uint16)),
        "early-and-late-floats": pa.array(np.linspace(-1e300, 1e300, 100)),
        "floats-of-ids": pa.array(np.arange(100) * 1e17),
        "close-floats": pa.array(1 + np.arange(100) * 2.0**-52),
        "negative-floats": pa.array((np.arange(100) - 50).astype(np.float32) / 1e9),
        "largest": pa.array(np.arange(100) + (2**63 - 100)),
    },
)
def test_time_is_any_column_with_an_order(tmp_path, times):
    dataset = load(write(tmp_path / "files", table(100, time=times)))
    assert rows_of_splits(dataset) == [
        list(range(80)),
        list(range(80, 90)),
        list(range(90, 100)),
    ]


@cases(
    ("times", "shown"),
    {
        "unsigned": (pa.array([0] * 99 + [2**63], pa.uint64()), "9223372036854775808"),
        "milliseconds": (
            pa.array([0] * 99 + [2**63 - 1], pa.timestamp("ms")),
            "9223372036854775807 (timestamp[ms])",
        ),
        "days": (pa.array([0] * 99 + [2**31 - 1], pa.date32()), "2147483647 (date32[day])"),
    },
)
def test_a_time_beyond_64_bits_is_refused_with_its_row(tmp_path, times, shown):
    files = write(tmp_path / "files", table(100, time=times))
    with refused(DataError, "column 'time': row 99", f"got {shown}"):
        load(files)


@cases(
    "times",
    {
        "integers": pa.array([*range(99), 2**63 - 1]),
        "timestamps": pa.array([*range(99), 2**63 - 1], pa.timestamp("us")),
    },
)
def test_the_latest_time_of_all_trains_without_a_test_split(tmp_path, times):
    files = write(tmp_path / "files", table(100, time=times))
    for valid, parts in ((0.1, [90, 10, 0]), (0.0, [100, 0, 0])):
        split = {"by": "time", "column": "time", "valid": valid, "test": 0.0}
        assert [len(part) for part in rows_of_splits(load(files, split=split))] == parts


def test_equal_times_are_in_one_split(tmp_path):
    files = write(tmp_path / "files", table(100, time=pa.array(np.arange(100) // 25)))
    train, valid, test = rows_of_splits(
        load(files, split={"by": "time", "column": "time", "valid": 0.3, "test": 0.2})
    )
    assert (train, valid, test) == (list(range(50)), list(range(50, 75)), list(range(75, 100)))


def test_quantiles_of_many_rows_come_from_every_kth(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_rule, "TIMES_MAX", 100)
    files = write(tmp_path / "files", table(1234), row_group_size=77)
    train, valid, test = rows_of_splits(load(files))
    assert len(train) == pytest.approx(987, abs=13)
    assert len(valid) == pytest.approx(123, abs=13)
    assert train + valid + test == list(range(1234))


def test_a_split_by_hash_keeps_equal_values_together(tmp_path):
    users = np.arange(5000) % 1000
    files = write(tmp_path / "files", table(5000, user=pa.array([f"u{user}" for user in users])))
    split = {"by": "hash", "column": "user", "valid": 0.2}
    splits = [set(users[rows]) for rows in rows_of_splits(load(files, split=split))]
    assert len(set.union(*splits)) == sum(map(len, splits)) == 1000
    assert [len(split) / 1000 for split in splits] == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    again = [set(users[rows]) for rows in rows_of_splits(load(files, split=split, seed=1))]
    assert again != splits


def test_a_split_by_files_takes_whole_files(tmp_path):
    files = write(tmp_path / "files", *(table(10, first=10 * number) for number in range(4)))
    split = {
        "by": "files",
        "valid_files": [str(files / "1.parquet")],
        "test_files": [str(files / "[23].parquet")],
    }
    train, valid, test = rows_of_splits(load(files, split=split))
    assert (train, valid, test) == (list(range(10)), list(range(10, 20)), list(range(20, 40)))


def test_vocabularies_have_the_ids_of_training_by_frequency(tmp_path):
    rng = np.random.default_rng(1)
    items, words = rng.zipf(1.5, 2000) % 400, [f"w{n}" for n in rng.integers(0, 50, 2000)]
    files = write(
        tmp_path / "files",
        table(2000, item=pa.array(items), word=pa.array(words)),
        row_group_size=300,
    )
    dataset = load(
        files,
        sparse={"item": {"min_count": 3, "max_size": 20}, "word": {}},
        split={"by": "hash", "column": "row"},
    )
    train = row_numbers(dataset.train.batches(batch_size=100))
    item_ids, word_ids = (feature.ids for feature in dataset.schema.sparse)

    counts = Counter(items[train].tolist())
    ranked = sorted((-count, item) for item, count in counts.items() if count >= 3)
    assert item_ids.ids.tolist() == [item for _, item in ranked][:20]
    counts = Counter(hash_string(words[row]) for row in train)
    assert word_ids.ids.tolist() == sorted(counts, key=lambda word: (-counts[word], word))
    assert item_ids.unknown == word_ids.unknown == "oov"


def test_unknown_ids_without_a_row_have_no_vector(tmp_path):
    files = write(tmp_path / "files", table(10, item=pa.array([5] * 4 + [6] * 5 + [7])))
    sections = {"sparse": {"item": {"unknown": "zero", "min_count": 4}}}
    dataset = load(files, **sections, split={"by": "time", "column": "time", "valid": 0.0})
    (item,) = dataset.schema.sparse
    assert (item.ids.unknown, item.ids.num_rows) == ("zero", 2)
    (train,) = dataset.train.batches(batch_size=10)
    assert train.sparse["item"].values().tolist() == [1] * 4 + [0] * 5
    (test,) = dataset.test.batches(batch_size=10)
    assert test.sparse["item"].values().tolist() == [-1]


def test_inputs_of_one_table_share_its_ids(tmp_path):
    history = pa.array([[1, 2], [2]] * 5)
    dataset = load(
        write(tmp_path / "files", table(10, item=pa.array([2, 3] * 5), history=history)),
        sparse={"item": {"table": "items"}, "history": {"table": "items"}},
    )
    item, past = dataset.schema.sparse
    assert item.ids is past.ids
    assert item.ids.ids.tolist() == [2, 1, 3]  # They occur 12, 4 and 4 times in training.
    (hint,) = dataset.tables
    assert (hint.name, hint.features, hint.pooling) == ("items", ("item", "history"), "mean")


def test_two_tables_with_one_vocabulary_share_ids_and_not_rows(tmp_path):
    history = pa.array([[1, 2], [2]] * 5)
    dataset = load(
        write(tmp_path / "files", table(10, item=pa.array([2, 3] * 5), history=history)),
        sparse={"history": {"vocabulary": "item"}, "item": {}},
    )
    past, item = dataset.schema.sparse
    assert item.ids is past.ids
    assert item.ids.ids.tolist() == [2, 1, 3]  # They occur 12, 4 and 4 times in training.
    hints = [(hint.name, hint.features, hint.pooling) for hint in dataset.tables]
    assert hints == [("history", ("history",), "mean"), ("item", ("item",), "sum")]


def test_hashed_and_identity_ids_need_no_vocabulary(tmp_path):
    dataset = load(
        write(tmp_path / "files", table(10)), sparse={"item": {"ids": "hash", "buckets": 50}}
    )
    assert dataset.schema.sparse[0].ids == Hash(buckets=50)


def test_standardize_has_the_moments_after_earlier_transforms(tmp_path):
    price = np.random.default_rng(2).lognormal(1, 2, 5000)
    dataset = load(
        write(tmp_path / "files", table(5000, price=pa.array(price)), row_group_size=700),
        dense={
            "row": {},
            "price": {"transforms": ["log1p", {"clip": [0, 3]}, "standardize"]},
            "bucket": {"column": "price", "transforms": [{"bucketize": [1, 2.5]}]},
        },
    )
    train = row_numbers(dataset.train.batches(batch_size=100))
    values = np.clip(np.log1p(price[train]), 0, 3)
    log, clip, standardize = dataset.schema.dense[1].transforms
    assert (log, clip) == (Log1p(), Clip(0.0, 3.0))
    assert isinstance(standardize, Standardize)
    assert standardize.mean == pytest.approx(values.mean())
    assert standardize.deviation == pytest.approx(values.std())
    assert dataset.schema.dense[2].transforms == (Bucketize([1.0, 2.5]),)
    batch = next(dataset.train.batches(batch_size=200))
    expected = (values - values.mean()) / values.std()
    assert batch.dense[:, 1].tolist() == pytest.approx(expected[:200].tolist(), abs=1e-5)
    assert batch.dense[:, 2].tolist() == np.digitize(price[:200], [1, 2.5]).tolist()


def test_counts_are_the_same_however_they_are_merged(monkeypatch):
    monkeypatch.setattr(parquet_statistics, "MERGED_MIN", 10)
    rng, counts, expected = np.random.default_rng(3), IdCounts(), Counter()
    for _ in range(50):
        ids, times = np.unique(rng.integers(-20, 20, 7), return_counts=True)
        counts.add(ids, times)
        expected.update(dict(zip(ids.tolist(), times.tolist(), strict=True)))
    actual = counts.most_frequent(min_count=1, max_size=None).tolist()
    assert actual == sorted(expected, key=lambda value: (-expected[value], value))


def test_moments_of_parts_are_those_of_the_whole():
    values = np.random.default_rng(4).normal(1e3, 1, (1000, 2)).astype(np.float32)
    moments = Moments(2)
    for part in np.split(values, [0, 1, 500, 999]):
        moments.add(part)
    exact = values.astype(np.float64)
    for column in range(2):
        assert moments.mean(column) == pytest.approx(exact[:, column].mean(), rel=1e-12)
        assert moments.deviation(column) == pytest.approx(exact[:, column].std(), rel=1e-9)


def count_passes(monkeypatch):
    passes, run = [], parquet_preparation._Pass.run

    def counted(self):
        passes.append(self)
        return run(self)

    monkeypatch.setattr(parquet_preparation._Pass, "run", counted)
    return passes


def test_a_second_run_reads_nothing_again(tmp_path, monkeypatch):
    passes = count_passes(monkeypatch)
    files = write(tmp_path / "files", table(100))
    dense = {"row": {}, "price": {"transforms": ["standardize"]}}
    first, second = load(files, dense=dense), load(files, dense=dense)
    assert len(passes) == 1
    assert first.schema == second.schema
    assert first.tables == second.tables
    assert first.digest() == second.digest()
    assert first.valid.label_means() == second.valid.label_means()
    load(files, dense=dense, shuffle_rows=5)
    assert len(passes) == 1
    load(files)
    assert len(passes) == 2
    write(files, table(101))
    load(files)
    assert len(passes) == 3


@cases("share", {"empty": 0.0, "half": 0.5, "all-but-the-end": 0.99})
def test_a_truncated_result_is_made_anew(tmp_path, monkeypatch, share):
    files = write(tmp_path / "files", table(100))
    load(files)
    (cached,) = (tmp_path / "cache/parquet").glob("*.npz")
    content = cached.read_bytes()
    cached.write_bytes(content[: int(len(content) * share)])
    passes = count_passes(monkeypatch)
    for _ in range(2):
        assert len(load(files).train) == 80
    assert len(passes) == 1


def test_preparation_reports_rows_up_to_all_of_them(tmp_path):
    files = write(tmp_path / "files", table(60), table(40, first=60), row_group_size=25)
    reports = []

    def report(*steps):
        reports.append(steps)

    def load_and_report():
        load_dataset(config(files), tasks=CLICK, cache=tmp_path / "cache", progress=report)

    load_and_report()
    rows = [25, 50, 60, 85, 100]
    steps = ["reading times", "reading rows"]
    assert reports == [(step, done, 100) for step in steps for done in rows]
    load_and_report()
    assert len(reports) == 10


def test_a_failed_preparation_keeps_nothing(tmp_path):
    broken = table(100, price=pa.array([None, *range(99)], pa.float64()))
    files = write(tmp_path / "files", broken)
    for _ in range(2):
        with refused(DataError, "got null"):
            load(files, dense={"price": {}})
    suffixes = {path.suffix for path in (tmp_path / "cache" / "parquet").iterdir()}
    assert suffixes == {".lock"}


def test_a_killed_preparation_is_done_anew(tmp_path):
    """The process is killed between writing and renaming, and leaves its lock file."""
    files = write(tmp_path / "files", table(100))
    script = f"""
        import os, signal
        from pathlib import Path
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        from tests.data.small_parquet import load
        load(Path({str(files)!r}))
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    killed = subprocess.run(command, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / "cache").rglob("*.npz")) == []
    assert len(load(files).train) == 80
    suffixes = sorted(path.suffix for path in (tmp_path / "cache" / "parquet").iterdir())
    assert suffixes == [".lock", ".npz"]


def test_files_are_found_by_folder_and_glob_each_once(tmp_path):
    files = write(tmp_path / "files", table(10), table(10, first=10))
    deep = write(files / "day=2", table(10, first=20))
    write(files / "_temporary", table(5))
    (files / "notes.txt").write_text("no data")
    for patterns in (
        [files],
        [f"{files}/*.parquet", deep / "0.parquet", files / "0.parquet"],
        [f"{files}/[01].parquet", f"{files}/day=*"],
    ):
        dataset = load(files, files=[str(pattern) for pattern in patterns])
        assert list(chain(*rows_of_splits(dataset))) == list(range(30))


@cases(
    "spelling",
    {"absolute": "{folder}/1.parquet", "dots": "files/../files/1.parquet", "link": "link.parquet"},
)
def test_one_file_under_two_paths_counts_once(tmp_path, monkeypatch, spelling):
    files = write(tmp_path / "files", *(table(10, first=10 * number) for number in range(3)))
    monkeypatch.chdir(tmp_path)
    os.symlink("files/1.parquet", "link.parquet")
    path = spelling.format(folder=files)
    split = {"by": "files", "valid_files": [path], "test_files": ["files/2.parquet"]}
    train, valid, _ = rows_of_splits(load(files, files=["files/"], split=split))
    assert (train, valid) == (list(range(10)), list(range(10, 20)))
    dataset = load(files, files=["files/1.parquet", path])
    assert list(chain(*rows_of_splits(dataset))) == list(range(10, 20))


def test_files_come_from_urls_of_fsspec(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for number in range(2):
        with memory.open(f"/clicks/{number}.parquet", "wb") as stream:
            pq.write_table(table(10, first=10 * number), stream)
    try:
        for pattern in ("memory://clicks", "memory://clicks/*.parquet"):
            dataset = load(tmp_path / "files", files=[pattern])
            assert list(chain(*rows_of_splits(dataset))) == list(range(20))
    finally:
        memory.rm("/clicks", recursive=True)


def test_a_url_that_cannot_be_read_is_refused(monkeypatch):
    memory = pytest.importorskip("fsspec").filesystem("memory")

    def fail(path):
        raise RuntimeError("no credentials")

    monkeypatch.setattr(memory, "isdir", fail)
    with refused(DataError, "memory://clicks", "no credentials"):
        find_files(["memory://clicks"], "files")


@cases(
    ("sections", "parts"),
    {
        "no-files": (
            {"files": ["nowhere/*.parquet"]},
            ["data.files", "found none for 'nowhere/*.parquet'"],
        ),
        "unknown-protocol": (
            {"files": ["nonsense://x"]},
            ["nonsense://x"],
        ),
        "empty-split": (
            {"split": {"by": "time", "column": "same"}},
            ["data.split", "got none of 100 rows split by time"],
        ),
        "constant": (
            {"dense": {"same": {"transforms": ["standardize"]}}},
            ["dense input 'same'", "got 5 in every"],
        ),
        "rare-ids": (
            {"sparse": {"id": {"column": "row", "min_count": 2}}},
            ["table 'id'", "found none"],
        ),
        "no-inputs": ({"dense": {}, "sparse": {}}, ["data: Schema"]),
        "large-null": (
            {"dense": {"row": {"null": 1e20}}},
            ["data: DenseInput 'row': default"],
        ),
    },
)
def test_a_configuration_that_does_not_fit_the_data_is_refused(tmp_path, sections, parts):
    files = write(tmp_path / "files", table(100, same=pa.array([5] * 100)))
    with refused(DataError, *parts):
        load(files, **sections)


def test_files_of_two_splits_are_refused(tmp_path):
    files = write(tmp_path / "files", table(10), table(10))
    split = {"by": "files", "valid_files": [str(files)], "test_files": [f"{files}/1.parquet"]}
    with refused(DataError, "1.parquet in valid_"):
        load(files, split=split)


def test_a_truncated_file_is_refused(tmp_path):
    files = write(tmp_path / "files", table(1000))
    file = files / "0.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    with refused(DataError, "0.parquet"):
        load(files)


def test_a_damaged_page_is_refused_with_its_row_group(tmp_path):
    files = write(tmp_path / "files", table(1000), row_group_size=500)
    file = files / "0.parquet"
    column = pq.read_metadata(file).row_group(1).column(0)
    content = bytearray(file.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + 40] = b"\xff" * 40
    file.write_bytes(content)
    with refused(DataError, "0.parquet: row group 1"):
        load(files)


def test_a_file_that_changes_during_the_pass_is_refused(tmp_path, monkeypatch):
    # The file has more row groups than are read ahead.
    files = write(tmp_path / "files", table(1000), row_group_size=100)
    add = parquet_preparation._Pass._add

    def change(self, rows, splits):
        os.utime(files / "0.parquet", ns=(1, 1))
        add(self, rows, splits)

    monkeypatch.setattr(parquet_preparation._Pass, "_add", change)
    with refused(DataError, "0.parquet", "bytes that"):
        load(files)


def test_a_task_needs_the_column_of_its_label(tmp_path):
    from embershard.data.tasks import DEFAULT_TASKS

    with refused(InputError, "tasks.score"):
        load(write(tmp_path / "files", table(10)), tasks=DEFAULT_TASKS)
