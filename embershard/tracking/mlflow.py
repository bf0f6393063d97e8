"""Runs and registered models in MLflow. The package mlflow is imported on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from embershard.errors import ConfigError, NotFoundError, UnavailableError
from embershard.tracking.thread import Point

RUN_FILE: Final = ".mlflow"
"""File in the folder of checkpoints that holds the id of their MLflow run."""

VERSION_TAG: Final = "embershard.version"
"""Tag of a registered version with the version's number in our repository."""

BATCH_METRICS_MAX: Final = 1000
BATCH_PARAMS_MAX: Final = 100
"""Limits of one request to an MLflow server."""


class MlflowRun:
    """An MLflow run. Its id is kept in ``folder``, the folder of checkpoints.

    If ``resumed``, it continues the folder's run. A new run logs the first 100 of ``params``.
    """

    def __init__(
        self,
        uri: str,
        *,
        experiment: str,
        name: str,
        folder: Path,
        resumed: bool,
        params: Mapping[str, object],
    ) -> None:
        self._client = _client(uri)
        if resumed and (folder / RUN_FILE).is_file():
            self._run_id = (folder / RUN_FILE).read_text()
            self._client.update_run(self._run_id, status="RUNNING")
            return
        from mlflow.entities import Param

        self._run_id = _new_run(self._client, experiment, name)
        (folder / RUN_FILE).write_text(self._run_id)
        entries = [Param(key, str(value)) for key, value in params.items()]
        self._client.log_batch(self._run_id, params=entries[:BATCH_PARAMS_MAX])

    def log(self, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, int(point.unix_seconds * 1000), point.step)
            for point in points
            for name, value in point.scalars.items()
        ]
        for start in range(0, len(metrics), BATCH_METRICS_MAX):
            batch = metrics[start : start + BATCH_METRICS_MAX]
            self._client.log_batch(self._run_id, metrics=batch)

    def close(self, *, finished: bool) -> None:
        """End the run as FINISHED, or as KILLED if it may be resumed."""
        self._client.set_terminated(self._run_id, "FINISHED" if finished else "KILLED")


def register_package(uri: str, package: Path, *, checkpoints: Path) -> str:
    """Log a package as an artifact of an MLflow run, and register it as a version of its model.

    ``checkpoints`` is the folder of the package's checkpoints. Their MLflow run gets the artifact;
    a new run is created if they have none.

    Returns:
        Version number in MLflow's registry.

    Raises:
        ConfigError: MLflow is not installed.
        UnavailableError: the server or store refuses, or does not answer.
    """
    model, version = package.absolute().parts[-2:]
    artifact, run_file = f"package/{model}/{version}", checkpoints / RUN_FILE
    with _errors_named(uri):
        client = _client(uri)
        if run_file.is_file():
            run_id = run_file.read_text()
        else:
            run_id = _new_run(client, model, f"{model} {version}")
            client.set_terminated(run_id)
        client.log_artifacts(run_id, str(package), artifact)
        if not client.search_registered_models(f"name='{model}'"):
            client.create_registered_model(model)
        source = f"{client.get_run(run_id).info.artifact_uri}/{artifact}"
        tags = {VERSION_TAG: version}
        return str(client.create_model_version(model, source, run_id, tags=tags).version)


def set_aliases(uri: str, model: str, labels: Mapping[str, int]) -> None:
    """Set MLflow's aliases of a model's registered versions. ``labels``: our version by alias. 0
    deletes the alias.

    Raises:
        NotFoundError: a version is not registered.
        ConfigError, UnavailableError: as ``register_package``.
    """
    with _errors_named(uri):
        client = _client(uri)
        numbers = {  # The search returns the newest registration first, and the newest wins.
            entry.tags.get(VERSION_TAG): entry.version
            for entry in reversed(client.search_model_versions(f"name='{model}'"))
        }
        for label, version in labels.items():
            if not version:
                client.delete_registered_model_alias(model, label)
            elif str(version) in numbers:
                client.set_registered_model_alias(model, label, numbers[str(version)])
            else:
                raise NotFoundError(
                    f"MLflow at {uri}: model {model!r}: expected package version {version} to be "
                    "registered, got none; register it with `embershard export --mlflow`"
                )


def _client(uri: str) -> Any:
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise ConfigError(
            f"MLflow at {uri}: expected the package mlflow to be installed, got none; run "
            "pip install 'embershard[mlflow]'"
        ) from error
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


@contextmanager
def _errors_named(uri: str) -> Iterator[None]:
    try:
        yield
    except (ConfigError, NotFoundError):
        raise
    except Exception as error:  # MLflow does not wrap the errors of stores and of HTTP.
        raise UnavailableError(f"MLflow at {uri}: {error}") from error


def _new_run(client: Any, experiment: str, name: str) -> str:
    existing = client.get_experiment_by_name(experiment)
    number = client.create_experiment(experiment) if existing is None else existing.experiment_id
    return str(client.create_run(number, run_name=name).info.run_id)
