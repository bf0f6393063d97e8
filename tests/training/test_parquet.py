"""`train` learns from Parquet files, and the package scores what a client sends."""

import numpy as np
import pyarrow as pa

from embershard.data import TaskConfig, load_dataset
from embershard.export import export_checkpoint
from embershard.serving import LocalPredictor
from embershard.training import RunConfig, train
from tests.data.small_parquet import config, table, write

TASKS = {"click": TaskConfig(label="click"), "buy": TaskConfig(label="buy")}


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
    run = RunConfig.model_validate(
        {
            "data": data,
            "tasks": TASKS,
            "model": {"embedding_dim": 4, "dense_layers": [4], "over_layers": [8, 1]},
            "training": {"batch_size": 64, "epochs": 3, "threads": 1, "table_learning_rate": 0.1},
            "checkpoint": {"folder": str(tmp_path / "checkpoints")},
        }
    )

    dataset = load_dataset(data, tasks=TASKS, cache=tmp_path / "cache")
    result = train(run, dataset)
    package = tmp_path / "ranker" / "1"
    export_checkpoint(result.checkpoint, package)

    tests = dataset.test.samples(400)
    answers = LocalPredictor(package, threads=1).predict_merged(tests)
    served = {name: np.concatenate([each.outputs[name] for each in answers]) for name in TASKS}
    for name, labels in (("click", clicks[3600:]), ("buy", prices[3600:] > 1)):
        scores = served[name]
        assert scores[labels].mean() > scores[~labels].mean() + 0.2
