"""Packages in the registry of a real MLflow store, and labels as aliases."""

import re
import socket
import sys

import pytest

from embershard.cli import main
from embershard.errors import ConfigError, NotFoundError, UnavailableError
from embershard.tracking.mlflow import MlflowRun, register_package, set_aliases
from embershard.tracking.thread import Point
from tests.tracking.stores import mlflow_store


@pytest.fixture
def store(tmp_path, monkeypatch):
    return mlflow_store(tmp_path, monkeypatch)


def package_in(folder, version):
    package = folder / "repository" / "ranker" / str(version)
    package.mkdir(parents=True)
    (package / "manifest.json").write_text(f"version {version}")
    return package


def aliases(client):
    """Versions of the package by alias."""
    model = client.get_registered_model("ranker")
    return {
        alias: client.get_model_version("ranker", number).tags["embershard.version"]
        for alias, number in model.aliases.items()
    }


def test_a_package_is_an_artifact_of_the_run_that_trained_it(store, tmp_path):
    uri, client = store
    MlflowRun(
        uri, experiment="x", name="first", folder=tmp_path, resumed=False, params={"a": 1}
    ).close(finished=True)
    (run,) = client.search_runs([client.get_experiment_by_name("x").experiment_id])
    number = register_package(uri, package_in(tmp_path, 3), checkpoints=tmp_path)
    registered = client.get_model_version("ranker", number)
    assert (registered.run_id, registered.tags) == (run.info.run_id, {"embershard.version": "3"})
    assert registered.source.endswith("/package/ranker/3")
    copy = client.download_artifacts(run.info.run_id, "package/ranker/3/manifest.json")
    with open(copy) as file:
        assert file.read() == "version 3"
    assert (run.data.params, run.info.status) == ({"a": "1"}, "FINISHED")


def test_a_package_without_a_run_gets_one_of_its_own(store, tmp_path):
    uri, client = store
    number = register_package(uri, package_in(tmp_path, 1), checkpoints=tmp_path)
    run = client.get_run(client.get_model_version("ranker", number).run_id)
    assert (run.info.run_name, run.info.status) == ("ranker 1", "FINISHED")


def test_labels_move_as_aliases(store, tmp_path):
    uri, client = store
    for version in (1, 2, 2):  # Version 2 is registered again, as after a second export.
        package = tmp_path / "repository" / "ranker" / str(version)
        package = package if package.exists() else package_in(tmp_path, version)
        register_package(uri, package, checkpoints=tmp_path)
    set_aliases(uri, "ranker", {"canary": 2, "stable": 1})
    assert aliases(client) == {"canary": "2", "stable": "1"}
    assert client.get_model_version_by_alias("ranker", "canary").version in (3, "3")
    set_aliases(uri, "ranker", {"canary": 0, "stable": 2})
    assert aliases(client) == {"stable": "2"}
    message = "model 'ranker': expected package version 7 to be registered, got none; register"
    with pytest.raises(NotFoundError, match=message):
        set_aliases(uri, "ranker", {"stable": 7})


def test_all_metrics_of_many_points_are_logged(store, tmp_path):
    uri, client = store
    run = MlflowRun(uri, experiment="x", name="n", folder=tmp_path, resumed=False, params={})
    run.log([Point(step, step / 2, {"a": step, "b": -step}) for step in range(1001)])
    run_id = (tmp_path / ".mlflow").read_text()
    for name, sign in (("a", 1), ("b", -1)):
        history = client.get_metric_history(run_id, name)
        assert [(entry.step, entry.value, entry.timestamp) for entry in history] == [
            (step, sign * step, step * 500) for step in range(1001)
        ]


def test_a_server_that_is_gone_is_named(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # It is never told to listen, so connections are refused.
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"^MLflow at {uri}: .*refused"):
            set_aliases(uri, "ranker", {"stable": 1})


def test_mlflow_that_is_not_installed_is_said_in_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    message = r"^MLflow at x: expected the package mlflow .*pip install 'embershard\[mlflow\]'"
    with pytest.raises(ConfigError, match=message):
        set_aliases("x", "ranker", {"stable": 1})


def test_commands_train_register_and_label(store, tmp_path, capsys):
    uri, client = store
    file, repository = tmp_path / "run.toml", tmp_path / "repository"
    file.write_text(
        '[data]\nname = "synthetic"\nexamples = 3000\n'
        "[model]\nembedding_dim = 4\ndense_layers = [4]\nover_layers = [4, 1]\n"
        "[training]\nepochs = 1\nthreads = 1\n"
        f'[checkpoint]\nfolder = "{tmp_path}/checkpoints"\n'
        f'[tracking]\nmlflow = "{uri}"\nexperiment = "clicks"\n'
    )
    assert main(["train", str(file)]) == 0
    export = ["export", f"{tmp_path}/checkpoints", "--out", f"{repository}/ranker/5"]
    assert main([*export, "--mlflow", uri]) == 0
    output = capsys.readouterr().out
    assert f"registered {repository}/ranker/5 in MLflow at {uri} as version 1" in output
    assert main(["label", str(repository), "ranker", "stable", "5", "--mlflow", uri]) == 0
    assert aliases(client) == {"stable": "5"}
    (run,) = client.search_runs([client.get_experiment_by_name("clicks").experiment_id])
    assert run.info.run_name == "checkpoints"
    assert run.data.params["training.epochs"] == "1"
    (auc,) = re.findall(r"^test +auc (\S+)", output, re.M)
    assert f"{run.data.metrics['test/auc']:.4f}" == auc
    assert client.get_model_version("ranker", "1").run_id == run.info.run_id
