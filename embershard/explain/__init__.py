"""Explains one request as the server sees it. Imports no torch; the predictor loads libtorch."""

from embershard.explain.as_table import explanation_tables
from embershard.explain.explanation import Explanation, explain_request, explain_sample
from embershard.explain.features import explanation_json

__all__ = [
    "Explanation",
    "explain_request",
    "explain_sample",
    "explanation_json",
    "explanation_tables",
]
