"""Data, folders and checkpoints that a run cannot use are refused before its first step."""

import json

import pytest

from embershard.errors import ConfigError, DataError
from embershard.training import train
from tests.cases import cases, refused
from tests.training.runs import config, dataset, interrupt_at, saving

DATA = dataset(400)


@cases(
    ("folder", "message"),
    {
        "nul": ("a\0b", "a\\x00b"),
        "home": ("~no-such-user/a", "~no-such-user/a"),
        "long": ("a" * 300, "File name too long"),
        "file": ("{tmp}/file", "{tmp}/file: File exists"),
        "in-file": ("{tmp}/file/a", "{tmp}/file/a: Not a directory"),
    },
)
def test_folders_that_cannot_be_made_are_refused(tmp_path, folder, message):
    (tmp_path / "file").write_text("in the way")
    with refused(ConfigError, "key 'checkpoint.folder'", message.format(tmp=tmp_path)):
        train(config(folder.format(tmp=tmp_path)), DATA)


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def interrupted_at(step, folder):
    """Message of an overwriting run that is interrupted after a step."""
    run = saving(folder, epochs=4, evaluate_every_steps=100)
    with pytest.raises(KeyboardInterrupt) as raised:
        train(run, DATA, overwrite=True, progress=interrupt_at(step))
    return str(raised.value)


def test_overwriting_keeps_the_earlier_run_until_a_checkpoint(tmp_path):
    first = train(saving(tmp_path, epochs=2), DATA)
    before = files(tmp_path)
    assert interrupted_at(4, tmp_path) == "interrupted; nothing of this run is kept"
    assert files(tmp_path) == before
    again = train(saving(tmp_path, epochs=2), DATA, resume=True)
    assert (again.steps, again.valid) == (first.steps, first.valid)
    last = tmp_path / "last"
    assert interrupted_at(7, tmp_path) == (
        f"interrupted; the same command without --overwrite continues from {last}/5"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["last"]
    assert [path.name for path in last.iterdir()] == ["5"]


def test_a_best_checkpoint_of_the_same_step_replaces_the_earlier(tmp_path):
    """The run is repeated with the same settings. It writes its first checkpoint in ``last`` at the
    step of its best one."""
    for _ in range(5):
        result = train(saving(tmp_path, epochs=1, evaluate_every_steps=5), DATA, overwrite=True)
        assert result.checkpoint == tmp_path / "5"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["5", "last"]
        assert [path.name for path in (tmp_path / "last").iterdir()] == ["5"]


def test_resuming_with_another_versions_settings_is_refused(tmp_path):
    train(saving(tmp_path, epochs=1), DATA)
    file = tmp_path / "last/5/training.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"config": "{}"}))
    with refused(ConfigError, f"{tmp_path}/last/5", "settings"):
        train(saving(tmp_path, epochs=1), DATA, resume=True)


def test_progress_that_cannot_be_read_is_refused_and_overwritten(tmp_path):
    train(saving(tmp_path, epochs=1), DATA)
    file = tmp_path / "last/5/training.json"
    file.unlink()
    file.mkdir()
    with refused(DataError, file, "Is a directory"):
        train(saving(tmp_path, epochs=1), DATA, resume=True)
    train(config(tmp_path, epochs=1), DATA, overwrite=True)
    assert list((tmp_path / "last").iterdir()) == []


def test_resuming_from_the_best_checkpoint_alone_is_refused(tmp_path):
    train(config(tmp_path, epochs=1), DATA)
    with refused(ConfigError, "key 'checkpoint.folder'", "(5)", tmp_path / "last"):
        train(config(tmp_path, epochs=1), DATA, resume=True)
