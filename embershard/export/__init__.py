"""Exports a trained module as a package."""

from embershard.export.exporter import ExportProgress, export_model
from embershard.export.from_checkpoint import export_checkpoint
from embershard.export.prune import Pruned, PrunedTable, prune_rows
from embershard.export.report import dense_report
from embershard.export.tables import Weights, parse_weights

__all__ = [
    "ExportProgress",
    "Pruned",
    "PrunedTable",
    "Weights",
    "dense_report",
    "export_checkpoint",
    "export_model",
    "parse_weights",
    "prune_rows",
]
