"""A run learns, repeats itself, keeps the best weights, and scores the test split once."""

import errno
from dataclasses import replace

import numpy as np
import pytest
import torch

from embershard.commands.train import _show_result
from embershard.data import to_rows
from embershard.errors import ConfigError
from embershard.models import build_model
from embershard.training import (
    RunConfig,
    evaluate_logits,
    last_checkpoints,
    load_checkpoint,
    metrics,
    read_config,
    score,
    train,
)
from embershard.training import run as run_module
from embershard.training.initial_model import model_arguments
from embershard.training.run_folder import locked_folder
from embershard.training.scorer import Scorer
from embershard.training.steps import set_learning_rates
from tests.cases import cases, refused
from tests.oracles import share_of_ordered_pairs
from tests.training.runs import config, dataset, interrupt_at, same, saving, weights_of

DATA = dataset()


@pytest.mark.parametrize("name", ["a b", "-x", "é"])
def test_a_table_name_unfit_for_export_is_refused_first(name, tmp_path):
    data = replace(DATA, tables=(replace(DATA.tables[0], name=name), *DATA.tables[1:]))
    with refused(ConfigError, "data: table name", f"got '{name}'"):
        train(config(tmp_path), data)


def test_a_model_that_does_not_fit_the_data_is_refused_first(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        '[data]\nname = "synthetic"\n[model]\nname = "din"\ntarget = "film"\n'
        f'[checkpoint]\nfolder = "{tmp_path}/run"\n'
    )
    with refused(ConfigError, "run.toml:3: key 'model'", "din"):
        train(read_config(file), DATA)
    assert not (tmp_path / "run").exists()


def test_a_run_learns_what_was_planted(tmp_path):
    data = dataset(examples=20_000)
    result = train(config(tmp_path, epochs=4, dense_learning_rate=0.05), data)
    assert result.test.auc > 0.6
    assert result.test.normalized_entropy < 0.99


@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_seed_gives_the_same_numbers(threads, tmp_path):
    first, again, other = (
        train(config(tmp_path / name, seed=seed, threads=threads), DATA)
        for name, seed in (("first", 3), ("again", 3), ("other", 4))
    )
    assert (first.valid, first.test, first.best_step) == (again.valid, again.test, again.best_step)
    assert same(weights_of(first), weights_of(again))
    assert not same(weights_of(first), weights_of(other))
    assert first.test != other.test


def test_the_result_is_that_of_the_checkpoint(tmp_path):
    run = config(tmp_path, rank_at=3)
    result = train(run, DATA)

    checkpoint = load_checkpoint(result.checkpoint)
    for split, outcome in ((DATA.test, result.test), (DATA.valid, result.valid)):
        evaluated = Scorer(checkpoint.module)(to_rows(split)).evaluate(run.tasks, rank_at=3)
        assert evaluated == {"score": outcome}
    logits = score(checkpoint.module, to_rows(DATA.test))
    assert result.test.auc == pytest.approx(
        share_of_ordered_pairs(logits.numpy(), DATA.test.labels), abs=1e-6
    )
    assert checkpoint.metrics["valid_auc"] == result.valid.auc
    assert (checkpoint.metrics["valid_ndcg"], checkpoint.metrics["valid_rank_at"]) == (
        result.valid.ndcg,
        3,
    )
    assert checkpoint.schema == DATA.schema


def test_learning_rates_rise_linearly_over_the_warm_up(tmp_path, monkeypatch):
    rates = []

    def recorded(module, optimizer, *arguments):
        set_learning_rates(module, optimizer, *arguments)
        (tables,) = (part for part in module.modules() if hasattr(part, "set_learning_rate"))
        rates.append((optimizer.param_groups[0]["lr"], tables.optimizer.learning_rate))

    monkeypatch.setattr(run_module, "set_learning_rates", recorded)
    settings = {"warmup_steps": 4, "warmup_start": 0.5, "epochs": 1}
    train(config(tmp_path, dense_learning_rate=0.08, table_learning_rate=0.4, **settings), DATA)
    factors = [0.5, 0.625, 0.75, 0.875, 1, 1]
    for (dense, tables), factor in zip(rates, factors, strict=False):
        assert (dense, tables) == pytest.approx((0.08 * factor, 0.4 * factor))
    assert len(rates) > len(factors)


@cases(
    ("line", "key"),
    {
        "start-without-steps": ("warmup_start = 0.5", "warmup_start"),
        "end-without-decay": ("decay_end = 0.5", "decay_end"),
        "decay-after-the-run": ('warmup_steps = 40\ndecay = "linear"', "warmup_steps"),
    },
)
def test_settings_without_effect_are_refused_with_their_line(line, key, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        f'[data]\nname = "synthetic"\n[training]\n{line}\n[checkpoint]\nfolder = "{tmp_path}/run"\n'
    )
    with refused(ConfigError, f"run.toml:4: key 'training.{key}'"):
        train(read_config(file), DATA)
    assert not (tmp_path / "run").exists()


class FakeEvaluations:
    """Replaces evaluation. Validation has the AUCs given here, the test split its own."""

    def __init__(self, monkeypatch, aucs):
        self._aucs = iter(aucs)
        self.on_test = 0
        monkeypatch.setattr(metrics, "evaluate_logits", self)

    def __call__(self, logits, labels, **options):
        metrics = evaluate_logits(logits, labels, **options)
        if len(labels) == len(DATA.test) and torch.equal(
            labels, torch.from_numpy(DATA.test.labels)
        ):
            self.on_test += 1
            return metrics
        return replace(metrics, auc=next(self._aucs))


def test_early_stopping_keeps_the_best_and_scores_test_once(tmp_path, monkeypatch):
    evaluations = FakeEvaluations(
        monkeypatch, [0.5, 0.7, 0.6, 0.7, 0.65, 0.9]
    )  # The run stops before the 0.9.
    steps = []

    result = train(
        config(tmp_path, epochs=9, patience=3),
        DATA,
        progress=lambda p: steps.append((p.step, p.best_auc)),
    )

    assert (result.best_step, result.steps, result.stopped_early) == (20, 50, True)
    assert result.checkpoint == tmp_path / "20"
    assert result.valid.auc == 0.7
    assert evaluations.on_test == 1
    assert [child.name for child in tmp_path.iterdir()] == ["20"]
    assert [step for step, _ in steps] == list(range(1, 51))
    assert [best for step, best in steps if step in (9, 10, 20, 50)] == [None, 0.5, 0.7, 0.7]


def test_the_last_step_of_a_run_that_stops_early_says_so(tmp_path, monkeypatch):
    FakeEvaluations(monkeypatch, [0.5, 0.4])
    reports = []
    train(config(tmp_path, patience=1), DATA, progress=reports.append)
    assert [call.step for call in reports if call.stopped_early] == [20]
    assert (reports[-1].step, reports[-1].seconds_left) == (20, 0)
    assert reports[-2].seconds_left > 0


def test_a_run_that_never_gets_worse_ends_with_its_epochs(tmp_path, monkeypatch):
    FakeEvaluations(monkeypatch, [0.5, 0.6, 0.7, 0.8, 0.9])
    # 1600 examples are 25 steps, with evaluations after steps 10, 20 and 25.
    result = train(config(tmp_path, epochs=1, evaluate_every_steps=10), DATA)
    assert (result.steps, result.best_step, result.stopped_early) == (25, 25, False)


def test_the_weights_kept_are_those_of_the_best_step(tmp_path, monkeypatch):
    def run(name, aucs, patience):
        FakeEvaluations(monkeypatch, aucs)
        return train(config(tmp_path / name, patience=patience), DATA)

    went_on = run("went-on", [0.9, 0.5, 0.5, 0.5, 0.5], 9)
    stopped = run("stopped", [0.9, 0.5], 1)
    later = run("later", [0.5, 0.9, 0.5], 1)
    assert [r.best_step for r in (went_on, stopped, later)] == [10, 10, 20]
    assert [r.steps for r in (went_on, stopped, later)] == [50, 20, 30]
    assert same(weights_of(went_on), weights_of(stopped))
    assert not same(weights_of(went_on), weights_of(later))
    assert went_on.test == stopped.test


def contents(folder):
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@cases(
    ("sharding", "message"),
    {
        "missing": ({"plan": "nope.json"}, "nope.json"),
        "both": ({"plan": "auto", "tables": {"*": "row_wise"}}, "'tables'"),
        "folder": ({"plan": "/"}, "Is a directory: '/'"),
    },
)
def test_an_unusable_plan_is_refused_in_one_process_too(tmp_path, sharding, message):
    settings = config(tmp_path).model_dump() | {"sharding": sharding}
    with refused(ConfigError, "key 'sharding.plan'", message):
        train(RunConfig.model_validate(settings), DATA)


def test_a_restart_replaces_only_checkpoints_of_its_own_job(tmp_path):
    first = train(config(tmp_path, epochs=4, evaluate_every_steps=100), DATA, job="a")
    before = contents(tmp_path)
    with refused(ConfigError, "earlier run (100)"):
        train(config(tmp_path, epochs=1, evaluate_every_steps=100), DATA, job="b")
    assert contents(tmp_path) == before
    again = train(config(tmp_path, epochs=1, evaluate_every_steps=100), DATA, job="a")
    assert (first.checkpoint.name, again.checkpoint.name) == ("100", "25")


def test_a_checkpoint_that_cannot_be_published_is_deleted(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "no space", "last")

    monkeypatch.setattr(last_checkpoints, "move_checkpoint", fail)
    with pytest.raises(OSError, match="no space"):
        train(saving(tmp_path, evaluate_every_steps=100), DATA)
    assert list(tmp_path.rglob("*")) == [tmp_path / "last"]


@pytest.mark.parametrize(
    ("split", "examples", "received"),
    [
        ("train", 0, "none"),
        ("valid", 1, "1 examples with labels of mean "),
        ("test", 1, "1 examples with labels of mean "),
    ],
)
def test_a_split_without_both_labels_is_refused_before_training(
    tmp_path, split, examples, received
):
    with refused(ConfigError, "key 'data'", f"the {split} split, got {received}"):
        train(config(tmp_path), cut(split, examples))


def cut(split, examples):
    """The data with only the first examples of one split."""
    return replace(DATA, **{split: getattr(DATA, split).take(np.arange(examples))})


def test_a_run_without_test_split_says_so(tmp_path, capsys):
    result = train(config(tmp_path / "cut"), cut("test", 0))
    assert result.test_tasks == {}
    _show_result(result)
    assert "\ntest        no such split\n" in capsys.readouterr().out
    assert same(weights_of(result), weights_of(train(config(tmp_path / "whole"), DATA)))


@pytest.mark.parametrize("evaluate_every_steps", [10, 1000])
def test_a_run_without_validation_split_keeps_its_last_step(tmp_path, capsys, evaluate_every_steps):
    data, reports = cut("valid", 0), []
    run = config(tmp_path, patience=1, evaluate_every_steps=evaluate_every_steps)
    steps = 2 * -(-len(data.train) // 64)
    result = train(run, data, progress=reports.append)
    assert (result.steps, result.best_step, result.stopped_early) == (steps, steps, False)
    assert [path.name for path in tmp_path.glob("[0-9]*")] == [str(steps)]
    assert result.valid_tasks == {}
    assert result.test.auc > 0.5
    assert {report.best_auc for report in reports} == {None}
    _show_result(result)
    assert f"all epochs after step {steps}\nvalidation  no such split" in capsys.readouterr().out
    assert len(load_checkpoint(result.checkpoint).samples) > 0


def test_a_run_without_validation_split_resumes(tmp_path):
    data = cut("valid", 0)
    expected = train(config(tmp_path / "whole"), data)
    run = saving(tmp_path / "killed")
    with pytest.raises(KeyboardInterrupt):
        train(run, data, progress=interrupt_at(27))
    assert same(weights_of(train(run, data)), weights_of(expected))


def test_a_folder_that_another_run_writes_to_is_refused(tmp_path):
    run = config(tmp_path, epochs=1, evaluate_every_steps=100)
    with locked_folder(run), refused(ConfigError, f"{tmp_path} is in use"):
        train(run, DATA, overwrite=True)
    assert train(run, DATA).checkpoint.parent == tmp_path


def test_overwriting_replaces_the_checkpoints_of_an_earlier_run(tmp_path):
    first = train(config(tmp_path, epochs=4, evaluate_every_steps=100), DATA)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "sharding.json").write_text("measured by a run whose plan was made")
    second = train(config(tmp_path, epochs=1, evaluate_every_steps=100), DATA, overwrite=True)
    assert (first.checkpoint.name, second.checkpoint.name) == ("100", "25")
    assert sorted(child.name for child in tmp_path.iterdir()) == ["25", "notes.txt"]


@cases(
    ("step", "message"),
    {
        "before-an-evaluation": (9, "nothing of this run is kept"),
        "after-three-evaluations": (31, "the best so far is kept in {folder}/20"),
    },
)
def test_an_interrupted_run_says_what_is_kept(step, message, tmp_path, monkeypatch):
    FakeEvaluations(monkeypatch, [0.5, 0.7, 0.6])
    with pytest.raises(KeyboardInterrupt) as ended:
        train(config(tmp_path), DATA, progress=interrupt_at(step))
    assert str(ended.value) == "interrupted; " + message.format(folder=tmp_path)
    results = [load_checkpoint(child).metrics["valid_auc"] for child in tmp_path.iterdir()]
    assert results == ([0.7] if step > 10 else [])


def test_an_interrupted_run_says_what_to_resume_from(tmp_path):
    with pytest.raises(KeyboardInterrupt) as ended:
        train(saving(tmp_path, every=4), DATA, progress=interrupt_at(9))
    assert str(ended.value) == f"interrupted; the same command continues from {tmp_path}/last/8"


def test_progress_tells_speed_loss_and_what_is_left(tmp_path):
    reports = []
    train(config(tmp_path, epochs=2), DATA, progress=reports.append)
    assert {call.steps_max for call in reports} == {50}
    assert all(0 < call.loss < 2 for call in reports)
    assert all(call.examples_per_second > 0 for call in reports)
    assert reports[-1].seconds_left == 0
    assert reports[0].seconds_left > 0


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
def test_every_optimizer_moves_every_weight(optimizer, tmp_path):
    run = config(tmp_path, epochs=1, dense_optimizer=optimizer, table_optimizer="sgd")
    torch.manual_seed(0)
    model = model_arguments(run.model, run.training, DATA)
    before = build_model("dlrm", model).state_dict()
    after = weights_of(train(run, DATA))
    assert [name for name in before if torch.equal(before[name], after[name])] == []


def test_threads_are_applied(tmp_path):
    thread_counts = []
    torch.set_num_threads(1)
    train(
        config(tmp_path, epochs=1, threads=2),
        DATA,
        progress=lambda p: thread_counts.append(torch.get_num_threads()),
    )
    assert set(thread_counts) == {2}


@cases(
    ("training", "place"),
    {
        "name": ({"id_dropout": {"usr": 0.5}}, "key 'training.id_dropout.usr'"),
        "no-unknown-ids": ({"id_dropout": {"user": 0.5}}, "key 'training.id_dropout.user'"),
        "diverging": (
            {"dense_optimizer": "sgd", "dense_learning_rate": 1e38},
            "training: step ",
        ),
    },
)
def test_settings_that_do_not_fit_are_refused(training, place, tmp_path):
    with refused(ConfigError, place):
        train(config(tmp_path, **training), DATA)
