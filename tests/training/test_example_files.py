"""The examples' configurations under torchrun, on two ranks."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from embershard.data import DEFAULT_CACHE, load_dataset
from embershard.training import latest_checkpoint, read_config, train

EXAMPLES = Path(__file__).parents[2] / "examples"
MOVIELENS = DEFAULT_CACHE.expanduser() / "movielens-100k"
DEADLINE_SECONDS = 600
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def configured(name, folder, **changes):
    """Writes an example's configuration with some keys changed and checkpoints in a folder."""
    text = (EXAMPLES / name).read_text()
    for key, value in {"folder": f'"{folder}/run"', **changes}.items():
        text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    file = folder / "run.toml"
    file.write_text(text)
    return file


def train_on_2_ranks(file):
    """Output of the command, and the validation AUC of its checkpoint."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.run(
        [sys.executable, *launch, "-m", "embershard", "train", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    checkpoint = latest_checkpoint(file.parent / "run")
    metrics = json.loads((checkpoint / "checkpoint.json").read_text())["metrics"]
    return process.stdout, metrics["valid_auc"]


def test_the_configuration_of_criteos_shape_trains_on_2_ranks(tmp_path):
    file = configured("criteo/synthetic.toml", tmp_path, examples=6000, batch_size=1024)
    output, _ = train_on_2_ranks(file)
    assert output.count("all epochs after step 5") == 1, output
    assert output.count("test        auc") == 1, output


def pairs_read(split, world_size):
    """Request and item of each row that the ranks read in one epoch, sorted."""
    batches = [
        batch
        for rank in range(world_size)
        for batch in split.batches(batch_size=512, shuffle_seed=0, rank=rank, world_size=world_size)
    ]
    pairs = zip(
        torch.cat([batch.request for batch in batches]).tolist(),
        torch.cat([batch.sparse["item"].values() for batch in batches]).tolist(),
        strict=True,
    )
    return sorted(pairs)


def test_movielens_trains_alike_on_1_and_2_ranks(tmp_path):
    """Each rank reads its own part of the file, so batches of two ranks hold other rows than
    batches of one. The AUC may differ by less than 0.01, as between seeds."""
    assert MOVIELENS.is_dir(), (
        f"needs MovieLens-100K in {MOVIELENS}: run `make data`, or `make test`"
    )
    files = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        changes = {"epochs": 1, "evaluate_every_steps": 1000}  # Evaluates once, at the end.
        files.append(configured("movielens/sharded.toml", folder, **changes))
    config = read_config(files[0])
    dataset = load_dataset(config.data)
    pairs = pairs_read(dataset.train, 1)
    assert len(set(pairs)) == 80_000
    assert pairs_read(dataset.train, 2) == pairs
    alone = train(config, dataset)
    output, auc = train_on_2_ranks(files[1])
    print(f"\nmovielens: validation AUC {alone.valid.auc} on one rank, {auc} on two")
    assert alone.steps == 157
    assert output.count("all epochs after step 157") == 1, output
    assert auc == pytest.approx(alone.valid.auc, abs=0.01)
    assert auc > 0.7
