"""Logs training runs to TensorBoard and MLflow, and registers packages in MLflow."""

from embershard.tracking.mlflow import register_package, set_aliases

__all__ = ["register_package", "set_aliases"]
