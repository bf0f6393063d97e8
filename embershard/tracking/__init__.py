"""Scalars of training runs in TensorBoard and MLflow, and packages in MLflow's registry."""

from embershard.tracking.mlflow import register_package, set_aliases

__all__ = ["register_package", "set_aliases"]
