"""Plans of training and of serving: measured costs, a search, a report; names follow TorchRec."""

from embershard.planner.calibration import calibrate
from embershard.planner.fleet import Fleet, check_memory, parse_fleet
from embershard.planner.inference import ServingPlanError, plan_package
from embershard.planner.inference_problem import ServingProblem, serving_problem
from embershard.planner.inference_report import ExplainedPlan, explained_plan
from embershard.planner.lookup_load import LookupLoad, load_of
from embershard.planner.machine import Machine, read_machine
from embershard.planner.measured_run import MeasuredRun, compare, recalibrate
from embershard.planner.placement_constraints import parse_constraints
from embershard.planner.planner import EmbeddingShardingPlanner
from embershard.planner.report import PlanReport
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
    "recalibrate",
    "serving_problem",
]
