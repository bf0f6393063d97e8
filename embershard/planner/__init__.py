"""Plans of sharded training: measured costs, a search, a report; names follow TorchRec."""

from embershard.planner.calibration import calibrate
from embershard.planner.machine import Machine, read_machine
from embershard.planner.planner import EmbeddingShardingPlanner, PlannerError
from embershard.planner.report import PlanReport
from embershard.planner.topology import Device, ParameterConstraints, Topology

__all__ = [
    "Device",
    "EmbeddingShardingPlanner",
    "Machine",
    "ParameterConstraints",
    "PlanReport",
    "PlannerError",
    "Topology",
    "calibrate",
    "read_machine",
]
