"""Runs with several tasks: losses, outputs and evaluation of each, on one rank and on two."""

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from embershard.commands.train import _show_result
from embershard.data import Dataset, TaskConfig, sample_requests, to_rows
from embershard.data.synthetic import SyntheticConfig, planted_click_log
from embershard.errors import ConfigError, InputError
from embershard.export import export_checkpoint
from embershard.models import ClassConfig, DINConfig, DLRMConfig, TwoTowerConfig
from embershard.serving import LocalPredictor
from embershard.training import evaluate_logits, load_checkpoint, score, train
from tests.cases import cases, refused
from tests.training.runs import INPUTS, config, dataset, interrupt_at, same, saving, weights_of

DATA = dataset()
TASKS = {"click": TaskConfig(), "buy": TaskConfig(weight=2.0), "seconds": TaskConfig(loss="mse")}
SPLITS = ("train", "valid", "test")
ALIKE = [replace(planted, ids=40) for planted in INPUTS]


def with_tasks(examples, count=3):
    """Examples with labels of tasks. Purchases have a label only after a click. Seconds are a dense
    input, and every fifth label is missing."""
    clicks = examples.labels
    buys = np.where(clicks == 1, examples.dense[:, 0] > 0, np.nan)
    seconds = np.where(np.arange(len(clicks)) % 5 > 0, 3 + examples.dense[:, 1], np.nan)
    columns = np.stack([clicks, buys, seconds], axis=1)[:, :count].astype(np.float32)
    return replace(examples, labels=columns)


def data_of(count=3):
    return replace(DATA, **{name: with_tasks(getattr(DATA, name), count) for name in SPLITS})


def run_of(folder, tasks=TASKS, model=None, **settings):
    changes = {"tasks": tasks} | ({} if model is None else {"model": model})
    return config(folder, **settings).model_copy(update=changes)


@dataclass(frozen=True)
class Streamed:
    """A split with only the methods of the protocol, and with weights."""

    rows: object
    weight: float | None = None

    @property
    def schema(self):
        return self.rows.schema

    def __len__(self):
        return len(self.rows)

    def batches(self, **options):
        for batch in self.rows.batches(**options):
            weights = (
                None if self.weight is None else torch.full_like(batch.dense[:, 0], self.weight)
            )
            yield batch._replace(weights=weights, request=None)

    def batch_sizes(self, **options):
        return self.rows.batch_sizes(**options)

    def label_means(self):
        return self.rows.label_means()

    def samples(self, count):
        return self.rows.samples(count)


class StreamedDataset(Dataset):
    def digest(self):
        return "digest"


def streamed(data, weight=None):
    splits = {name: Streamed(to_rows(getattr(data, name)), weight) for name in SPLITS}
    return StreamedDataset(name="streamed", schema=data.schema, tables=data.tables, **splits)


def arguments_in(checkpoint):
    return json.loads((checkpoint / "checkpoint.json").read_text())["model"]["arguments"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(run_of(tmp_path_factory.mktemp("tasks")), data_of())


def test_each_task_is_evaluated_on_the_labels_that_count(trained):
    checkpoint = load_checkpoint(trained.checkpoint)
    test = data_of().test
    logits = score(checkpoint.module, to_rows(test))
    assert logits.shape == (len(test), 3)
    assert list(trained.test_tasks) == list(trained.valid_tasks) == ["click", "buy", "seconds"]
    labels, request = torch.from_numpy(test.labels), torch.from_numpy(test.request)
    for column, name in enumerate(("click", "buy")):
        expected = evaluate_logits(logits[:, column], labels[:, column], request=request)
        assert trained.test_tasks[name] == expected
    assert trained.test == trained.test_tasks["click"]
    has_label = ~np.isnan(test.labels[:, 2])
    error = logits[has_label, 2].double().numpy() - test.labels[has_label, 2]
    assert trained.test_tasks["seconds"].mse == pytest.approx(np.mean(error**2))
    assert trained.test_tasks["seconds"].mae == pytest.approx(np.mean(np.abs(error)))
    assert trained.test_tasks["seconds"].examples == has_label.sum() < len(test)
    assert checkpoint.metrics["valid_buy_auc"] == trained.valid_tasks["buy"].auc


def test_the_result_has_a_line_for_each_task_and_split(trained, capsys):
    _show_result(trained)
    lines = capsys.readouterr().out.splitlines()
    starts = [f"{split:10}  {task}  " for split in ("validation", "test") for task in TASKS]
    assert [line[: len(start)] for line, start in zip(lines[1:], starts, strict=False)] == starts
    assert f"mse {trained.test_tasks['seconds'].mse:.4f}" in lines[6]


@cases(
    "model",
    {
        "dlrm": DLRMConfig(embedding_dim=4, dense_layers=(4,), over_layers=(8, 1)),
        "din": DINConfig(embedding_dim=4, over_layers=(8, 1)),
        "own-class": ClassConfig.model_validate(
            {"class": "tests.training.own_models:Ranker", "hidden": [8]}
        ),
    },
)
def test_served_outputs_are_those_of_the_trained_model(model, tmp_path):
    data = planted_click_log(SyntheticConfig(examples=500, inputs=ALIKE)).dataset
    splits = {name: with_tasks(getattr(data, name)) for name in SPLITS}
    result = train(run_of(tmp_path / "run", model=model, epochs=1), replace(data, **splits))
    module = load_checkpoint(result.checkpoint).module
    package = export_checkpoint(result.checkpoint, tmp_path / "ranker" / "1", weights="fp32")
    test = splits["test"]
    answers = LocalPredictor(package).predict_merged(sample_requests(test, 1000))
    # Requests come in the order of their first examples.
    order = np.concatenate(
        [np.flatnonzero(test.request == number) for number in dict.fromkeys(test.request)]
    )
    logits = score(module, to_rows(test.take(order)))
    expected = {
        "click": torch.sigmoid(logits[:, 0]),
        "buy": torch.sigmoid(logits[:, 1]),
        "seconds": logits[:, 2],
    }
    for name, values in expected.items():
        served = np.concatenate([answer.outputs[name] for answer in answers])
        np.testing.assert_allclose(served, values.numpy(), rtol=1e-5, atol=1e-6)
    assert set(answers[0].outputs) == set(expected)


def trained_on_ranks(env, folder):
    result = train(run_of(folder, epochs=1, batch_size=63), data_of(), env=env)
    return result.test_tasks, {name: weight.clone() for name, weight in weights_of(result).items()}


def test_a_task_with_one_prediction_is_warned_of_once(tmp_path, caplog):
    model = ClassConfig.model_validate(
        {"class": "tests.training.own_models:HalfDead", "hidden": [8]}
    )
    tasks = {"click": TaskConfig(), "buy": TaskConfig()}
    data = data_of(2)
    train(run_of(tmp_path, tasks, model, epochs=1), data)
    [warning] = [message for message in caplog.messages if "are equal" in message]
    assert f"all {len(data.valid)} predictions of task 'buy' are equal" in warning


def test_two_ranks_train_like_one(workers, tmp_path):
    evaluations, weights = trained_on_ranks(None, tmp_path / "alone")
    for result, rank_weights in workers.run(2, trained_on_ranks, tmp_path / "ranks"):
        assert result["click"].auc == pytest.approx(evaluations["click"].auc, abs=1e-4)
        assert result["seconds"].mse == pytest.approx(evaluations["seconds"].mse, rel=1e-4)
        assert result["buy"].examples == evaluations["buy"].examples
        assert rank_weights.keys() == weights.keys()
        for name, expected in weights.items():
            torch.testing.assert_close(rank_weights[name], expected, rtol=1e-4, atol=1e-5)


def test_a_streamed_split_trains_like_rows_in_memory(trained, tmp_path):
    result = train(run_of(tmp_path), streamed(data_of()))
    assert same(weights_of(result), weights_of(trained))
    assert result.test.auc == trained.test.auc
    assert result.test.gauc is None
    assert trained.test.gauc is not None


def test_row_weights_and_task_weights_are_factors_of_the_loss(trained, tmp_path):
    halves = {
        name: task.model_copy(update={"weight": task.weight / 2}) for name, task in TASKS.items()
    }
    result = train(run_of(tmp_path, halves), streamed(data_of(), weight=2.0))
    assert same(weights_of(result), weights_of(trained))


def test_a_task_without_auc_keeps_the_weights_of_the_lowest_loss(tmp_path):
    data = replace(
        DATA,
        **{
            name: replace(item, labels=item.dense[:, :1].copy())
            for name in SPLITS
            for item in [getattr(DATA, name)]
        },
    )
    steps = []
    run = run_of(tmp_path, {"value": TaskConfig(loss="mse")}, epochs=6, dense_learning_rate=0.3)
    result = train(run, data, progress=lambda now: steps.append((now.step, now.best_auc)))
    checkpoint = load_checkpoint(result.checkpoint)
    logits = score(checkpoint.module, to_rows(data.valid)).double().numpy()
    outcome = np.mean((logits - data.valid.labels[:, 0]) ** 2)
    assert result.valid_tasks["value"].mse == pytest.approx(outcome)
    assert outcome < np.var(data.valid.labels)
    assert {auc for _, auc in steps} == {None}
    assert checkpoint.metrics["valid_mse"] == result.valid_tasks["value"].mse
    with refused(InputError, "'bce'", "['value']"):
        _ = result.valid


def test_a_checkpoint_keeps_the_tasks_in_order(trained):
    arguments = arguments_in(trained.checkpoint)
    assert list(arguments["tasks"].items()) == [(name, task.loss) for name, task in TASKS.items()]
    assert arguments["over_arch_layer_sizes"] == [8, 3]
    assert list(load_checkpoint(trained.checkpoint).module.tasks) == list(TASKS)


@cases(
    ("tasks", "columns", "parts"),
    {
        "too-few-columns": (TASKS, 2, ["key 'tasks'", "got 2 columns"]),
        "no-such-labels": (
            {"click": TaskConfig(), "buy": TaskConfig(), "seconds": TaskConfig()},
            3,
            ["task 'seconds' in the train split"],
        ),
    },
)
def test_labels_that_do_not_fit_the_tasks_are_refused(tasks, columns, parts, tmp_path):
    with refused(ConfigError, *parts):
        train(run_of(tmp_path / "run", tasks), data_of(columns))
    assert not (tmp_path / "run").exists()


RARE = {"click": TaskConfig(), "buy": TaskConfig()}


def with_labels(split, value, column):
    """Data of two tasks. In one split, all labels of a column are ``value``."""
    labels = getattr(data_of(2), split).labels.copy()
    labels[:, column] = value
    return replace(data_of(2), **{split: replace(getattr(data_of(2), split), labels=labels)})


def with_last_checkpoints(run):
    checkpoint = run.checkpoint.model_copy(update={"last_every_steps": 5})
    return run.model_copy(update={"checkpoint": checkpoint})


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("value", [0.0, 1.0, math.nan])
def test_a_task_that_cannot_be_measured_is_warned_of(split, value, tmp_path, caplog, capsys):
    run, data = with_last_checkpoints(run_of(tmp_path, RARE)), with_labels(split, value, column=1)
    result = train(run, data)
    [warning] = [message for message in caplog.messages if "'buy'" in message]
    assert f"expected examples with labels 0 and 1 of task 'buy' in the {split} split, " in warning
    evaluations = {"valid": result.valid_tasks, "test": result.test_tasks}[split]
    assert math.isnan(evaluations["buy"].auc)
    assert evaluations["click"].auc > 0.5
    _show_result(result)
    title = {"valid": "validation", "test": "test"}[split]
    assert f"{title:10}  buy  auc -  normalized entropy -" in capsys.readouterr().out
    metrics = json.loads((result.checkpoint / "checkpoint.json").read_text())["metrics"]
    assert ("valid_buy_auc" in metrics) == (split == "test")
    states = list(tmp_path.glob("last/*/training.json"))
    best = [json.loads(state.read_text())["best"]["buy"]["auc"] for state in states]
    assert all((auc is None) == (split == "valid") for auc in best)
    again = train(run, data, resume=True)
    assert again.valid_tasks["click"] == result.valid_tasks["click"]


def test_other_tasks_alone_decide_which_step_is_best(tmp_path):
    alone = with_labels("valid", 0.0, column=1)
    expected = train(run_of(tmp_path / "rare", RARE), alone)
    areas = [expected.valid_tasks["click"].auc]

    def note(now):
        if now.best_auc is not None:
            areas.append(now.best_auc)

    result = train(run_of(tmp_path / "again", RARE), alone, progress=note)
    assert result.best_step == expected.best_step
    assert max(areas) == result.valid_tasks["click"].auc


@cases(
    ("split", "value", "column", "task", "labels"),
    {
        "no-task-of-valid": ("valid", 0.0, [0, 1], "click", "labels of mean 0.0"),
        "no-task-of-test": ("test", 0.0, [0, 1], "click", "labels of mean 0.0"),
        "nothing-trains": ("train", math.nan, 1, "buy", "no labels"),
    },
)
def test_a_task_without_usable_labels_is_refused(split, value, column, task, labels, tmp_path):
    data = with_labels(split, value, column)
    with refused(ConfigError, f"task '{task}' in the {split} split", labels):
        train(run_of(tmp_path / "run", RARE), data)


@cases("tasks", {"bce": RARE, "mse": {"click": TaskConfig(loss="mse")}})
def test_validation_weights_of_0_are_refused(tasks, tmp_path):
    data = data_of(len(tasks))
    valid = Streamed(to_rows(data.valid), weight=0.0)
    with refused(ConfigError, "key 'data.weight'", "task 'click' in the valid split"):
        train(run_of(tmp_path, tasks), replace(streamed(data, weight=1.0), valid=valid))
    assert list(tmp_path.glob("[0-9]*")) == []


def test_two_towers_refuse_a_second_task(tmp_path):
    run = run_of(tmp_path / "run", model=TwoTowerConfig(embedding_dim=4))
    with refused(ConfigError, "key 'model': two_tower"):
        train(run, data_of())


def test_a_run_from_before_there_were_tasks_resumes(tmp_path):
    expected = train(saving(tmp_path / "whole"), DATA)
    with pytest.raises(KeyboardInterrupt):
        train(saving(tmp_path / "old"), DATA, progress=interrupt_at(27))
    file = tmp_path / "old" / "last" / "25" / "training.json"
    state = json.loads(file.read_text())
    assert "tasks" not in json.loads(state["config"])
    assert "tasks" not in arguments_in(file.parent)
    best = state["best"]["score"]
    state["best"] = {
        name: best[name] for name in ("auc", "log_loss", "normalized_entropy", "examples")
    }
    file.write_text(json.dumps(state))
    trained = train(saving(tmp_path / "old"), DATA, resume=True)
    assert same(weights_of(trained), weights_of(expected))
    assert trained.test == expected.test
