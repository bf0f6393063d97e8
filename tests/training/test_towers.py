"""A run of the model dmt on two hosts of two ranks each."""

import os
from unittest.mock import patch

from torch.testing import assert_close

from embershard.export import export_checkpoint
from embershard.package import Package
from embershard.sharding import ShardingEnv
from embershard.training import RunConfig, latest_checkpoint, load_checkpoint, train
from tests.training.runs import dataset

RANKS, LOCAL = 4, 2


def config_of(folder):
    return RunConfig.model_validate(
        {
            "data": {"name": "synthetic"},
            "model": {
                "name": "dmt",
                "embedding_dim": 4,
                "dense_layers": [4],
                "over_layers": [8, 1],
                "towers": [["user", "history"], ["item"]],
            },
            "training": {
                "batch_size": 90,
                "epochs": 1,
                "evaluate_every_steps": 5,
                "clip_norm": 0.05,
                "threads": 1,
            },
            "checkpoint": {"folder": str(folder)},
        }
    )


def train_on_hosts(env, folder):
    """Trains on two hosts. The plan puts each tower on a host."""
    hosts = ShardingEnv.from_process_group(env.process_group, local_size=LOCAL)
    with patch.dict(os.environ, LOCAL_WORLD_SIZE=str(LOCAL)):
        train(config_of(folder), dataset(), env=hosts)


def test_a_run_on_two_hosts_has_the_weights_of_one_process(workers, tmp_path):
    workers.run(RANKS, train_on_hosts, str(tmp_path / "hosts"))
    train(config_of(tmp_path / "alone"), dataset())

    checkpoints = [latest_checkpoint(tmp_path / name) for name in ("hosts", "alone")]
    hosts, alone = (load_checkpoint(path).module.state_dict() for path in checkpoints)
    assert checkpoints[0].name == checkpoints[1].name
    assert_close(dict(hosts), dict(alone), rtol=1e-4, atol=1e-5)
    export_checkpoint(checkpoints[0], tmp_path / "dmt" / "1")
    assert Package.open(tmp_path / "dmt" / "1").manifest.model == "dmt"
