"""Resuming: the checkpoint that a run continues from, and its result."""

import json
import re
import shutil

import pytest

from embershard.errors import ConfigError, DataError
from embershard.training import TrainingStopped, dry_run, train
from tests.cases import refused
from tests.training.runs import config, dataset, interrupt_at, same, saving, weights_of

DATA = dataset()


def damage_weights(checkpoint):
    file = next(checkpoint.glob("state/*.distcp"))
    file.write_bytes(file.read_bytes()[:-100])


def damage_progress(checkpoint):
    (checkpoint / "training.json").write_text("{")


def damage_step(checkpoint):
    file = checkpoint / "training.json"
    file.write_text(file.read_text().replace('"step": 8', '"step": 1000000000'))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights of a run that was not stopped."""
    return weights_of(train(config(tmp_path_factory.mktemp("whole")), DATA))


def stopped_after_step_9(folder):
    """Interrupts a run after step 9 and returns its settings. It leaves the checkpoints of steps 4
    and 8."""
    return stopped_after(9, folder)


def stopped_after(step, folder):
    run = saving(folder, every=4)
    with pytest.raises(KeyboardInterrupt):
        train(run, DATA, progress=interrupt_at(step))
    return run


@pytest.mark.parametrize("damage", [damage_weights, damage_progress, damage_step])
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(damage, whole, tmp_path, caplog):
    run = stopped_after_step_9(tmp_path / "run")
    last = tmp_path / "run" / "last"
    damage(last / "8")
    dry = dry_run(run, DATA, resume=True)
    assert dry.step == (8 if damage is damage_weights else 4)  # A dry run reads no weights.
    training = run.training.model_copy(update={"rank_at": 3})  # Weights do not depend on rank_at.
    resumed = train(run.model_copy(update={"training": training}), DATA, resume=True)
    assert re.search(rf"last/8/.*; going on from the one before, {last}/4$", caplog.text, re.M)
    assert same(weights_of(resumed), whole)


def test_resume_with_overwrite_is_refused(tmp_path):
    with refused(ConfigError, "resume", "overwrite", "both"):
        train(config(tmp_path), DATA, resume=True, overwrite=True)


def test_a_file_named_like_a_killed_runs_folder_stays_with_a_log(tmp_path, caplog):
    run = stopped_after_step_9(tmp_path)
    stray, killed = tmp_path / "last/.8.partial", tmp_path / "last/.12.abc.partial"
    stray.write_text("")
    killed.mkdir()
    train(run, DATA, resume=True)
    assert f"{stray}: expected a folder of a killed run, got a file" in caplog.text
    assert stray.exists()
    assert not killed.exists()


def test_a_run_without_its_best_checkpoint_goes_on_from_before(tmp_path, caplog):
    run = stopped_after(13, tmp_path)
    shutil.rmtree(tmp_path / "10")
    resumed = train(run, DATA, resume=True)
    assert f"{tmp_path}/10: expected the best checkpoint of the run of" in caplog.text
    assert f"going on from the one before, {tmp_path}/last/8" in caplog.text
    assert resumed.checkpoint.is_dir()


def test_a_run_whose_checkpoints_are_all_damaged_says_so(tmp_path):
    run = stopped_after_step_9(tmp_path)
    damage_weights(tmp_path / "last" / "8")
    damage_progress(tmp_path / "last" / "4")
    with refused(DataError, "last/4/training.json"):
        train(run, DATA, resume=True)


def test_an_older_damaged_checkpoint_stops_no_run(tmp_path):
    run = stopped_after_step_9(tmp_path)
    damage_progress(tmp_path / "last" / "4")
    assert train(run, DATA, resume=True).checkpoint.is_dir()


def test_an_unfinished_run_is_resumed_and_says_so(whole, tmp_path, caplog):
    run = stopped_after_step_9(tmp_path / "run")
    assert dry_run(run, DATA).step == 8
    resumed = train(run, DATA)
    assert f"resuming after step 8 of 50 from {tmp_path}/run/last/8" in caplog.text
    assert same(weights_of(resumed), whole)


def test_an_unfinished_run_of_other_settings_is_refused(tmp_path):
    run = stopped_after_step_9(tmp_path)
    other_training = run.training.model_copy(update={"clip_norm": 1.0})
    with refused(ConfigError, f"{tmp_path}/last/8", "training.clip_norm = 1.0, got 0.0"):
        train(run.model_copy(update={"training": other_training}), DATA)
    other_data = dataset(seed=1)
    with refused(ConfigError, "examples"):
        train(run, other_data)
    assert (tmp_path / "last" / "8").is_dir()


def test_a_run_that_an_earlier_version_began_is_resumed(tmp_path):
    run = stopped_after_step_9(tmp_path)
    for file in tmp_path.glob("last/*/training.json"):
        state = json.loads(file.read_text())
        settings = json.loads(state["config"])
        del settings["training"]["clip_norm"], settings["training"]["decay"]
        del state["finished"]
        file.write_text(json.dumps(state | {"config": json.dumps(settings)}))
    assert dry_run(run, DATA).step == 8


def test_a_finished_run_is_repeated_only_if_told_to(tmp_path):
    run = stopped_after_step_9(tmp_path)
    finished = train(run, DATA)
    with refused(ConfigError, "earlier run (", "last/48"):
        train(run, DATA)
    repeated = train(run, DATA, resume=True)
    assert repeated.test == finished.test
    assert same(weights_of(repeated), weights_of(finished))


def test_a_run_told_to_overwrite_an_unfinished_one_begins_anew(tmp_path, caplog):
    run = stopped_after_step_9(tmp_path)
    assert train(run, DATA, overwrite=True).steps == 50
    assert "resuming" not in caplog.text


def stopped_and_resumed(env, folder):
    """Rank 1 is told to stop during step 13, before the second evaluation."""
    steps = []

    def stop():
        is_told = env is None or env.rank == 1
        return is_told and len(steps) == 12

    run = config(folder, batch_size=63, clip_norm=0.1, decay="cosine")
    try:
        train(run, DATA, env=env, progress=steps.append, stop=stop)
    except TrainingStopped as stopped:
        message = str(stopped)
    result = train(run, DATA, env=env)
    return message, result.test, weights_of(result)


def unbroken(env, folder):
    result = train(config(folder, batch_size=63, clip_norm=0.1, decay="cosine"), DATA, env=env)
    return result.test, weights_of(result)


@pytest.mark.parametrize("ranks", [0, 2], ids=["alone", "ranks"])
def test_a_run_that_was_told_to_stop_resumes_bit_by_bit(ranks, workers, tmp_path):
    def run(function, folder):
        return workers.run(ranks, function, folder) if ranks else [function(None, folder)]

    ended = run(stopped_and_resumed, tmp_path / "stopped")
    for (message, test, weights), (test_expected, expected) in zip(
        ended, run(unbroken, tmp_path / "whole"), strict=True
    ):
        folder = tmp_path / "stopped"
        assert message == (
            f"stopped; the best so far is kept in {folder}/10 and the same command "
            f"continues from {folder}/last/13"
        )
        assert test == test_expected
        assert same(weights, expected)
