"""Progress bars: what they say, and that they say it on standard error."""

from dataclasses import replace
from functools import partial

import pytest

from embershard.console import bytes_bar, data_bar, export_bar, training_bar
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


def test_training_says_everything_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with training_bar("dlrm on movielens") as show:
        show(replace(training(240, 0.7312), steps_max=1570))
    (line,) = capsys.readouterr().err.splitlines()
    words = line.split()
    assert words[:5] == ["training", "dlrm", "on", "movielens", "240/1570"]
    assert words[5][0] == "━"
    assert words[6:12] == ["loss", "0.568", "auc", "0.731", "41k", "ex/s"]
    assert words[12].count(":") == 1  # The time left.
    assert len(line) <= 80


@pytest.mark.parametrize("columns", ["80", "160"])
def test_a_run_that_stops_early_ends_with_a_full_bar_and_says_so(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    with training_bar("dlrm on movielens") as show:
        show(training(100, 0.7))
        show(replace(training(200, 0.7), stopped_early=True))
    (line,) = capsys.readouterr().err.splitlines()
    assert " 200 ━━━━" in line
    assert "auc 0.700 stopped early" in line
    assert "╸" not in line  # The half character at the end of a bar that is not full.
    assert "/400" not in line


@pytest.mark.parametrize(
    ("speed", "text"),
    [(12.4, "12"), (999, "999"), (1000, "1k"), (41_234, "41k"), (1_234_567, "1.2M"), (36e6, "36M")],
)
def test_speeds_are_short(capsys, speed, text):
    with training_bar("x") as show:
        show(replace(training(1, None), examples_per_second=speed))
    assert f" {text} ex/s" in capsys.readouterr().err


@pytest.mark.parametrize("bar", [training_bar, export_bar, partial(bytes_bar, "verifying")])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_leaves_no_bar(capsys, bar, error):
    with pytest.raises(error), bar("x"):
        raise error
    assert capsys.readouterr() == ("", "")


def test_data_that_cannot_be_prepared_leaves_no_bar(capsys):
    def prepare():
        with data_bar() as show:
            show("reading rows", 1, 2)
            raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        prepare()
    assert capsys.readouterr() == ("", "")


def test_training_shows_no_auc_before_there_is_one(capsys):
    with training_bar("x") as show:
        show(training(1, None))
    assert "auc" not in capsys.readouterr().err


def test_exporting_shows_the_table_and_the_share_of_rows(capsys):
    with export_bar("out/1") as show:
        show(ExportProgress(table="items", rows_done=30, rows_total=40))
    told = capsys.readouterr().err
    assert "75%" in told
    assert "table items" in told


def test_verifying_shows_bytes(capsys):
    with bytes_bar("verifying", "out/1") as show:
        show(2_500_000, 10_000_000)
    told = capsys.readouterr().err
    assert "25%" in told
    assert "2.5 of 10.0 MB" in told


def test_preparing_data_shows_the_step_and_its_units(capsys):
    with data_bar() as show:
        show("reading rows", 2_500_000, 10_000_000)
    told = capsys.readouterr().err
    assert "preparing data" in told
    assert "25%" in told
    assert "reading rows 2.5M of 10M" in told


def test_data_that_is_prepared_already_shows_no_bar(capsys):
    with data_bar():
        pass
    assert capsys.readouterr() == ("", "")


def test_names_that_look_like_markup_are_shown_as_they_are(capsys):
    with export_bar("[red]out[/red]") as show:
        show(ExportProgress(table="[bold]", rows_done=1, rows_total=2))
    told = capsys.readouterr().err
    assert "[red]out[/red]" in told
    assert "[bold]" in told
