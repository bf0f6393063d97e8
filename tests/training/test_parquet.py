"""`train` learns from Parquet files, and the package scores what a client sends."""

import numpy as np
import pyarrow as pa

from embershard.data import TaskConfig, load_dataset
from embershard.errors import ConfigError
from embershard.export import export_checkpoint
from embershard.serving import LocalPredictor
from embershard.training import RunConfig, train
from tests.cases import cases, refused
from tests.data.small_parquet import config, table, write

TASKS = {"click": TaskConfig(label="click"), "buy": TaskConfig(label="buy")}


@cases(
    "split",
    {
        "time": {"by": "time", "column": "time", "valid": 0.0, "test": 0.0},
        "hash": {"by": "hash", "column": "row", "valid": 0.0, "test": 0.0},
        "files": {"by": "files"},
    },
)
def test_all_rows_train_without_other_splits(tmp_path, split):
    data = config(write(tmp_path / "files", table(200)), split=split)
    result = train_on(tmp_path, data, {"click": TASKS["click"]})
    assert (result.steps, result.valid_tasks, result.test_tasks) == (12, {}, {})
    export_checkpoint(result.checkpoint, tmp_path / "ranker" / "1")


def test_validation_weights_of_0_name_their_column(tmp_path):
    weights = pa.array([1.0] * 160 + [0.0] * 40)
    data = config(write(tmp_path / "files", table(200, w=weights)), weight="w")
    with refused(ConfigError, "task 'click' in the valid split", "column 'w'"):
        train_on(tmp_path, data, {"click": TASKS["click"]})


def train_on(folder, data, tasks):
    """A run of three epochs on small batches."""
    run = RunConfig.model_validate(
        {
            "data": data,
            "tasks": tasks,
            "model": {"embedding_dim": 4, "dense_layers": [4], "over_layers": [8, 1]},
            "training": {"batch_size": 64, "epochs": 3, "threads": 1, "table_learning_rate": 0.1},
            "checkpoint": {"folder": str(folder / "checkpoints")},
        }
    )
    return train(run, load_dataset(data, tasks=tasks, cache=folder / "cache"))


def test_two_tasks_are_learned_from_files_and_served(tmp_path):
    rng = np.random.default_rng(0)
    users, prices = rng.integers(0, 20, 4000), rng.lognormal(0, 1, 4000)
    clicks = rng.random(4000) < np.where(users % 2 == 0, 0.8, 0.1)
    buys = pa.array(rng.random(4000) < np.where(prices > 1, 0.9, 0.1), mask=~clicks)
    columns = {
        "user": pa.array([f"u{user}" for user in users]),
        "price": pa.array(prices),
        "click": pa.array(clicks),
        "buy": buys,
    }
    data = config(
        write(tmp_path / "files", table(4000, **columns), row_group_size=500),
        dense={"price": {"transforms": ["log1p", "standardize"]}},
        sparse={"user": {}},
        shuffle_rows=1000,
    )
    result = train_on(tmp_path, data, TASKS)
    package = tmp_path / "ranker" / "1"
    export_checkpoint(result.checkpoint, package)

    tests = load_dataset(data, tasks=TASKS, cache=tmp_path / "cache").test.samples(400)
    answers = LocalPredictor(package, threads=1).predict_merged(tests)
    served = {name: np.concatenate([answer.outputs[name] for answer in answers]) for name in TASKS}
    for name, labels in (("click", clicks[3600:]), ("buy", prices[3600:] > 1)):
        scores = served[name]
        assert scores[labels].mean() > scores[~labels].mean() + 0.2
