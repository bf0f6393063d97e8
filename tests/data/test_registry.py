"""Data sets are found by name, and settings that a data set does not have are refused."""

from pathlib import Path

from pydantic import ValidationError

from embershard.data import DataConfig, TaskConfig, load_dataset, movielens_folder
from embershard.errors import DataError, InputError
from tests.cases import cases, refused
from tests.data.small_movielens import HEADERS, recbole_files, write


def test_movielens_is_read_from_the_folder_that_is_named(tmp_path):
    files = recbole_files()
    rows = [
        f"{user}\t{item}\t{3 + (at > 6)}\t{at}" for at, (user, item) in enumerate([(7, 1)] * 12)
    ]
    files["ml-100k.inter"] = [HEADERS["inter"], *rows]

    config = DataConfig(name="movielens", path=write(tmp_path, files, encoding="utf-8"))
    dataset = load_dataset(config, cache=tmp_path / "cache")

    assert dataset.name == "movielens"
    assert [len(dataset.train), len(dataset.valid), len(dataset.test)] == [10, 1, 1]


def test_synthetic_takes_examples_and_seed():
    dataset = load_dataset(DataConfig(name="synthetic", examples=200, seed=5))

    assert dataset.name == "synthetic"
    assert len(dataset.train) == 160


def test_a_named_folder_is_never_fetched_into(tmp_path):
    assert movielens_folder(tmp_path / "nowhere") == tmp_path / "nowhere"
    with refused(DataError, "nowhere", "found none"):
        load_dataset(DataConfig(name="movielens", path=tmp_path / "nowhere"))


def test_a_data_set_moves_to_another_folder(tmp_path):
    assert DataConfig(name="movielens").at(tmp_path) == DataConfig(name="movielens", path=tmp_path)
    with refused(InputError, "'synthetic'"):
        DataConfig(name="synthetic").at(tmp_path)


@cases(
    ("settings", "parts"),
    {
        "name": ({"name": "netflix"}, ["name\n"]),
        "examples": ({"name": "movielens", "examples": 5}, ["examples\n"]),
        "seed": ({"name": "movielens", "seed": 0}, ["seed\n", "none for movi"]),
        "path": ({"name": "synthetic", "path": Path("x")}, ["path\n"]),
        "buckets": ({"name": "synthetic", "buckets": 9}, ["buckets\n"]),
        "two-maps": (
            {"name": "criteo", "min_count": 2, "buckets": 9},
            ["buckets\n", "none with min_count"],
        ),
        "shares": (
            {"name": "criteo", "valid": 0.6, "test": 0.5},
            ["test\n", "valid and test to be less than 1 together, and valid is 0.6", "value=0.5"],
        ),
        "one-share": (
            {"name": "criteo", "valid": 0.95},
            ["valid\n", "less than 1 together, and test is 0.1 by default", "value=0.95"],
        ),
        "unknown-key": ({"name": "synthetic", "rows": 5}, ["rows\n", "not permitted"]),
        "few": ({"name": "synthetic", "examples": 9}, ["examples\n", "equal to 10"]),
        "negative-seed": ({"name": "synthetic", "seed": -1}, ["seed\n", "equal to 0"]),
    },
)
def test_settings_that_mean_nothing_are_refused(settings, parts):
    with refused(ValidationError, *parts):
        DataConfig(**settings)


def test_the_criteo_shape_has_its_inputs():
    dataset = load_dataset(DataConfig(name="synthetic_criteo", examples=50))
    assert dataset.name == "synthetic_criteo"
    assert (len(dataset.schema.dense), len(dataset.schema.sparse)) == (13, 26)
    rows = [item.ids.num_rows for item in dataset.schema.sparse]
    assert (rows[0], rows[1], rows[5], max(rows)) == (100_000, 36_746, 3, 100_000)


def test_built_in_data_has_labels_for_one_task():
    config = DataConfig(name="synthetic", examples=50)
    several = {"click": TaskConfig(), "buy": TaskConfig(label="bought")}
    with refused(InputError, "buy"):
        load_dataset(config, tasks=several)
    assert len(load_dataset(config, tasks={"like": TaskConfig()}).train)
