"""Metrics of a server for Prometheus, and a status page for people."""

from embershard.serving.metrics.port import MetricsPort

__all__ = ["MetricsPort"]
