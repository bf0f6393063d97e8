"""Rank 0 of a run logs its scalars to TensorBoard and MLflow."""

import socket
import sys
from itertools import pairwise

import pytest

from embershard.errors import ConfigError
from embershard.training import read_config, train
from embershard.training.config import TrackingConfig
from tests.cases import cases, refused
from tests.tracking.stores import mlflow_store
from tests.training.runs import config, dataset, interrupt_at, same, saving, weights_of

DATA = dataset()


def tracked(folder, tracking, every=0, **training):
    run = saving(folder, every, **training)
    return run.model_copy(update={"tracking": TrackingConfig(**tracking)})


def series(folder):
    """Steps and values of each tag in a folder of event files."""
    reason = "TensorBoard is not installed"
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason=reason
    )
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_losses_rates_and_metrics_are_written_for_tensorboard(tmp_path):
    losses = []
    run = tracked(
        tmp_path / "run",
        {"tensorboard": str(tmp_path / "events"), "every_steps": 1},
        dense_learning_rate=0.08,
        table_learning_rate=0.4,
        warmup_steps=4,
        warmup_start=0.5,
        epochs=1,
    )
    result = train(run, DATA, progress=lambda now: losses.append(now.loss))
    written = series(tmp_path / "events")
    factors = [0.5, 0.625, 0.75, 0.875] + [1] * 21
    for name, rate in (("dense", 0.08), ("table", 0.4)):
        expected = [(step, rate * factor) for step, factor in enumerate(factors, 1)]
        assert written[f"train/{name}_learning_rate"] == expected
    # The bar shows a moving mean: 0.95 of the one before plus 0.05 of the step's loss.
    step_losses = [losses[0]] + [(now - 0.95 * before) / 0.05 for before, now in pairwise(losses)]
    assert [value for _, value in written["train/loss"]] == pytest.approx(step_losses, rel=1e-4)
    assert [step for step, _ in written["valid/auc"]] == [10, 20, 25]
    assert (result.best_step, result.valid.auc) in written["valid/auc"]
    assert written["test/auc"] == [(result.best_step, result.test.auc)]


def test_a_resumed_run_goes_on_in_the_same_series(tmp_path, monkeypatch):
    uri, client = mlflow_store(tmp_path, monkeypatch)
    tracking = {"tensorboard": str(tmp_path / "events"), "mlflow": uri, "every_steps": 3}
    run = tracked(tmp_path / "run", tracking, every=20)
    with pytest.raises(KeyboardInterrupt):
        train(run, DATA, progress=interrupt_at(29))
    run_id = (tmp_path / "run" / ".mlflow").read_text()
    assert client.get_run(run_id).info.status == "KILLED"
    result = train(run, DATA)
    written = series(tmp_path / "events")
    assert [step for step, _ in written["train/loss"]] == list(range(3, 50, 3))
    assert [step for step, _ in written["valid/auc"]] == [10, 20, 30, 40, 50]
    (logged,) = client.search_runs([client.get_experiment_by_name("embershard").experiment_id])
    assert (logged.info.run_id, logged.info.status) == (run_id, "FINISHED")
    assert logged.data.metrics["test/auc"] == result.test.auc
    steps = {entry.step for entry in client.get_metric_history(run_id, "train/loss")}
    assert steps == set(range(3, 50, 3))


def test_a_server_that_is_gone_costs_one_warning(tmp_path, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # It is never told to listen, so connections are refused.
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        result = train(tracked(tmp_path / "tracked", {"mlflow": uri}), DATA)
    (message,) = (text for text in caplog.messages if "MLflow" in text)
    assert message.startswith(f"MLflow at {uri}: ")
    assert message.endswith("; this run is not tracked there any more")
    expected = train(config(tmp_path / "plain"), DATA)
    assert same(weights_of(result), weights_of(expected))
    assert result.test == expected.test


def train_on_rank(env, folder):
    train(tracked(folder / "run", {"tensorboard": str(folder / "events")}), DATA, env=env)


def test_only_rank_0_logs(workers, tmp_path):
    workers.run(2, train_on_rank, tmp_path)
    assert len(list((tmp_path / "events").iterdir())) == 1
    assert [step for step, _ in series(tmp_path / "events")["train/loss"]] == [10, 20, 30, 40, 50]


@cases(
    ("key", "missing", "message"),
    {
        "tensorboard": ("tensorboard", "tensorboard", "pip install 'embershard[tensorboard]'"),
        "mlflow": ("mlflow", "mlflow", "pip install 'embershard[mlflow]'"),
        "experiment": ("experiment", "", "mlflow"),
    },
)
def test_tracking_that_cannot_happen_is_refused(key, missing, message, tmp_path, monkeypatch):
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    file = tmp_path / "run.toml"
    file.write_text(
        f'[data]\nname = "synthetic"\n[tracking]\n{key} = "x"\n'
        f'[checkpoint]\nfolder = "{tmp_path}/run"\n'
    )
    with refused(ConfigError, f"{file}:4: key 'tracking.{key}'", message):
        train(read_config(file), DATA)
