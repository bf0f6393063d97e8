"""`ParquetBatches` feeds any training loop, one pass over the data at a time."""

import subprocess
import sys

import pytest
import torch

from embershard.data import ParquetBatches, load_dataset
from embershard.errors import InputError
from embershard.package.id_maps import Vocabulary
from tests.cases import cases, refused
from tests.data.small_parquet import CLICK, config, row_numbers, table, write


@pytest.fixture
def settings(tmp_path):
    files = write(tmp_path / "files", table(100), row_group_size=30)
    return {"config": config(files), "tasks": CLICK, "cache": tmp_path / "cache"}


def test_each_iteration_is_the_same_pass(settings):
    batches = ParquetBatches(**settings, batch_size=30, shuffle_seed=4)
    assert len(batches) == 80
    assert row_numbers(batches) == row_numbers(batches)
    assert sorted(row_numbers(batches)) == list(range(80))
    other = ParquetBatches(**settings, batch_size=30, shuffle_seed=5)
    assert row_numbers(other) != row_numbers(batches)


def test_it_knows_schema_and_tables(settings):
    batches = ParquetBatches(**settings, batch_size=30)
    assert batches.schema.dense_names() == ["row"]
    assert isinstance(batches.schema.sparse[0].ids, Vocabulary)
    assert [(hint.name, hint.features) for hint in batches.tables] == [("item", ("item",))]


def test_it_reads_the_split_part_and_rest_that_are_asked_for(settings):
    valid = ParquetBatches(**settings, split="valid", batch_size=4)
    assert row_numbers(valid) == list(range(80, 90))
    part = ParquetBatches(**settings, split="test", batch_size=4, rank=1, world_size=2, first=1)
    assert [len(batch.labels) for batch in part] == [2, 1]


def test_it_is_what_load_dataset_reads(settings):
    dataset = load_dataset(settings["config"], tasks=CLICK, cache=settings["cache"])
    one = next(dataset.train.batches(batch_size=10, shuffle_seed=1))
    other = next(iter(ParquetBatches(**settings, batch_size=10, shuffle_seed=1)))
    assert torch.equal(one.dense, other.dense)
    assert (dataset.name, len(dataset.test)) == ("parquet", 10)


@pytest.mark.parametrize(
    "read",
    [
        lambda *data: ParquetBatches(*data, batch_size=9),
        lambda *data: load_dataset(data[0], tasks=data[1]),
    ],
    ids=["batches", "data-set"],
)
def test_the_variable_names_the_folder_that_keeps_data(settings, tmp_path, monkeypatch, read):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EMBERSHARD_CACHE", "~/kept")
    read(settings["config"], CLICK)
    assert len(list(tmp_path.glob("home/kept/parquet/*.npz"))) == 1


@cases(
    ("arguments", "parts"),
    {
        "split": ({"split": "training"}, ["split", "got 'training'"]),
        "rank": ({"rank": 2, "world_size": 2}, ["rank", "got 2"]),
        "first": ({"first": -1}, ["first", "got -1"]),
        "size": ({"batch_size": 0}, ["batch_size", "got 0"]),
    },
)
def test_impossible_arguments_are_refused(settings, arguments, parts):
    with refused(InputError, *parts):
        ParquetBatches(**({**settings, "batch_size": 2} | arguments))


def test_without_pyarrow_only_parquet_files_are_refused(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused(InputError, "pip install 'embershard"):
        ParquetBatches(**settings, batch_size=2)


def test_pyarrow_is_imported_only_for_parquet_files():
    code = "import sys, embershard.data, embershard.training; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
