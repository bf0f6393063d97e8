"""The load tool: sends random requests that fit the served model's schema. Needs no torch."""

from embershard.bench.load_options import LoadOptions
from embershard.bench.random_requests import TrafficOptions, parse_examples, parse_ids, parse_spans
from embershard.bench.report import report_json, report_table
from embershard.bench.result import RunResult
from embershard.bench.run import run_load
from embershard.bench.session import BenchInterrupt, BenchOptions, BenchReport, run_bench
from embershard.bench.slo import Objective, parse_objective

__all__ = [
    "BenchInterrupt",
    "BenchOptions",
    "BenchReport",
    "LoadOptions",
    "Objective",
    "RunResult",
    "TrafficOptions",
    "parse_examples",
    "parse_ids",
    "parse_objective",
    "parse_spans",
    "report_json",
    "report_table",
    "run_bench",
    "run_load",
]
