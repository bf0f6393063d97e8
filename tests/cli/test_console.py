"""Progress bars: what they say, and that they say it on standard error."""

import pytest

from embershard.console import export_bar, training_bar, verify_bar
from embershard.export import ExportProgress
from embershard.training import TrainingProgress


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def training(step, auc):
    return TrainingProgress(
        step=step,
        steps_max=400,
        loss=0.56789,
        examples_per_second=41234.5,
        seconds_left=3.0,
        best_auc=auc,
    )


def test_training_shows_loss_auc_speed_and_share(capsys):
    with training_bar("dlrm on movielens") as show:
        show(training(100, None))
        show(training(200, 0.7312))
    told = capsys.readouterr()
    assert told.out == ""
    words = told.err.split()
    assert words[:4] == ["training", "dlrm", "on", "movielens"]
    assert "50%" in words
    assert "loss 0.5679  auc 0.7312  41,234 examples/s" in told.err


def test_training_shows_no_auc_before_there_is_one(capsys):
    with training_bar("x") as show:
        show(training(1, None))
    assert "auc" not in capsys.readouterr().err


def test_exporting_shows_the_table_and_the_share_of_rows(capsys):
    with export_bar("out/1") as show:
        show(ExportProgress(table="items", rows_done=30, rows_total=40))
    told = capsys.readouterr().err
    assert "exporting out/1" in told
    assert "75%" in told
    assert "table items" in told


def test_verifying_shows_bytes(capsys):
    with verify_bar("out/1") as show:
        show(2_500_000, 10_000_000)
    told = capsys.readouterr().err
    assert "25%" in told
    assert "2.5 of 10.0 MB" in told


def test_names_that_look_like_markup_are_shown_as_they_are(capsys):
    with export_bar("[red]out[/red]") as show:
        show(ExportProgress(table="[bold]", rows_done=1, rows_total=2))
    told = capsys.readouterr().err
    assert "[red]out[/red]" in told
    assert "[bold]" in told
