"""Two ranks that are killed while they train on Parquet files resume bit by bit."""

import os
import signal

import pytest
import torch

from embershard.training import load_checkpoint, train
from tests.training.test_request_rows import data_of, run_of

KILLED_AFTER = 16
"""Checkpoint 10 is published by then, since the save of step 15 waits for it. That of step 15 may
be half written."""


def trained(env, folder, data, run):
    """Losses after each step, evaluations of the test split, and the best weights."""
    losses = []
    checkpoint = run.checkpoint.model_copy(update={"folder": str(folder), "last_every_steps": 5})
    run = run.model_copy(update={"checkpoint": checkpoint})

    def progress(now):
        losses.append(now.loss)
        if now.step == KILLED_AFTER and (folder / "both-ranks").exists():
            # Opening a FIFO waits for the other rank, so both are killed at this step.
            with open(folder / "both-ranks", "rw"[env.rank]):
                os.kill(os.getpid(), signal.SIGKILL)

    result = train(run, data, env=env, progress=progress)
    return losses, result.test_tasks, load_checkpoint(result.checkpoint).module.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["impression", "request"])
def test_killed_ranks_resume_bit_by_bit_on_parquet(rows, workers, tmp_path):
    requests, impressions = data_of(tmp_path)
    data = requests if rows == "request" else impressions
    run = run_of(tmp_path, data, epochs=2)
    expected = workers.run(2, trained, tmp_path / "whole", data, run)

    folder = tmp_path / "killed"
    folder.mkdir()
    os.mkfifo(folder / "both-ranks")
    with pytest.raises(EOFError):  # A worker ends without an answer.
        workers.run(2, trained, folder, data, run)
    (folder / "both-ranks").unlink()
    assert (folder / "last/10").is_dir()
    resumed = workers.run(2, trained, folder, data, run)

    for (losses, tests, weights), (all_losses, all_tests, all_weights) in zip(
        resumed, expected, strict=True
    ):
        assert len(losses) in (len(all_losses) - 10, len(all_losses) - 15)
        assert losses == all_losses[-len(losses) :]
        assert tests == all_tests
        assert all(torch.equal(weights[name], all_weights[name]) for name in all_weights)
