"""The load tool: drives a server with requests drawn from its model's schema. Needs no torch."""

from embershard.bench.drawing import TrafficOptions
from embershard.bench.live import LiveLine
from embershard.bench.load_options import LoadOptions
from embershard.bench.report import report_json, report_table
from embershard.bench.run import Progress, RunResult, run_load
from embershard.bench.session import BenchOptions, BenchReport, run_bench
from embershard.bench.slo import Objective, parse_objective
from embershard.bench.specs import parse_examples, parse_ids, parse_spans
from embershard.bench.svg import latency_svg

__all__ = [
    "BenchOptions",
    "BenchReport",
    "LiveLine",
    "LoadOptions",
    "Objective",
    "Progress",
    "RunResult",
    "TrafficOptions",
    "latency_svg",
    "parse_examples",
    "parse_ids",
    "parse_objective",
    "parse_spans",
    "report_json",
    "report_table",
    "run_bench",
    "run_load",
]
