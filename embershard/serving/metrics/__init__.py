"""Metrics and the status page: what a server counts, for Prometheus and for people."""

from embershard.serving.metrics.port import MetricsPort

__all__ = ["MetricsPort"]
