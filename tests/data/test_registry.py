"""Data sets are found by name, and settings that mean nothing to one are refused."""

from pathlib import Path

import pytest

from embershard.data import DataConfig, load_dataset, movielens_folder
from embershard.errors import DataError, InputError
from tests.data.small_movielens import HEADERS, recbole_files, write


def test_movielens_is_read_from_the_folder_that_is_named(tmp_path):
    files = recbole_files()
    rows = [
        f"{user}\t{item}\t{3 + (at > 6)}\t{at}" for at, (user, item) in enumerate([(7, 1)] * 12)
    ]
    files["ml-100k.inter"] = [HEADERS["inter"], *rows]

    dataset = load_dataset(
        DataConfig(name="movielens", path=write(tmp_path, files, encoding="utf-8"))
    )

    assert [len(dataset.train), len(dataset.valid), len(dataset.test)] == [9, 1, 2]


def test_synthetic_takes_rows_and_seed():
    dataset = load_dataset(DataConfig(name="synthetic", rows=200, seed=5))

    assert dataset.name == "synthetic"
    assert len(dataset.train) == 160


def test_a_named_folder_is_never_fetched_into(tmp_path):
    assert movielens_folder(tmp_path / "nowhere") == tmp_path / "nowhere"
    with pytest.raises(DataError, match="got neither"):
        load_dataset(DataConfig(name="movielens", path=tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        pytest.param(
            DataConfig(name="netflix"),
            r"one of \['movielens', 'synthetic'\], got 'netflix'",
            id="x",
        ),
        pytest.param(
            DataConfig(name="movielens", rows=5),
            "'movielens': expected no 'rows', got 5",
            id="rows",
        ),
        pytest.param(DataConfig(name="synthetic", path=Path("x")), "expected no 'path'", id="path"),
    ],
)
def test_settings_that_mean_nothing_are_refused(config, message):
    with pytest.raises(InputError, match=message):
        load_dataset(config)
