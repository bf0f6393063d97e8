"""Plans of training and of serving, from measured costs. Names follow TorchRec. One search serves
both: ``cost`` prices shards, ``placement`` bounds a step, and ``starts`` and ``search`` choose cuts
and ranks. Equal input gives an equal plan."""

from embershard.planner.calibration import calibrate
from embershard.planner.comparison import MeasuredRun, compare
from embershard.planner.fleet import Fleet, check_memory, parse_fleet
from embershard.planner.lookup_load import LookupLoad, load_of
from embershard.planner.machine import Machine, read_machine
from embershard.planner.planner import EmbeddingShardingPlanner
from embershard.planner.report import PlanReport
from embershard.planner.serving_cost import ServingProblem, parse_constraints, serving_problem
from embershard.planner.serving_plan import (
    ExplainedPlan,
    ServingPlanError,
    explained_plan,
    plan_package,
)
from embershard.planner.topology import Device, ParameterConstraints, Topology
from embershard.planner.training_problem import PlannerError

__all__ = [
    "Device",
    "EmbeddingShardingPlanner",
    "ExplainedPlan",
    "Fleet",
    "LookupLoad",
    "Machine",
    "MeasuredRun",
    "ParameterConstraints",
    "PlanReport",
    "PlannerError",
    "ServingPlanError",
    "ServingProblem",
    "Topology",
    "calibrate",
    "check_memory",
    "compare",
    "explained_plan",
    "load_of",
    "parse_constraints",
    "parse_fleet",
    "plan_package",
    "read_machine",
    "serving_problem",
]
