"""MLflow stores in files, for tests."""

import pytest


def mlflow_store(folder, monkeypatch):
    """URI of an empty store, and a client for it."""
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = f"file://{folder}/mlflow"
    return uri, mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
