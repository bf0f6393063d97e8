"""Plans of training and of serving, from measured costs. Names follow TorchRec.

One search serves both; its constants are in ``search``.

1. Cost. The seconds of each shard of each cut, for lookup, update and messages, are linear in ids,
  bags, distinct rows of a batch, and bytes of the cache lines of its rows. A row outside a cache of
  2 MiB, or of 32 MiB, costs more; Che's approximation tells how many there are. An update misses as
  many rows as its lookup, but at most all distinct ones.
2. Bound. A linear program chooses fractions of cuts with the least work that fit the memory, among
  the cuts whose largest shard takes at most T seconds. Bisection searches the least T for which all
  ranks together can do this work in T seconds. No plan of these cuts is faster.
3. Greedy start. Tables are placed by decreasing cost, each by the cheapest cut that fits and each
  shard on the rank that it loads least. If memory runs out, tables are placed by decreasing memory,
  and shards also on the fullest rank that has memory. The last resort is to cut every table by rows
  over all ranks.
4. Local search. Ranks wait for each other after lookups and after updates, so a step takes the sum
  of the busiest ranks of both phases. Moves, swaps and other cuts shorten it. In training, while a
  step takes over 1.01 of the bound, a few tables get random cuts and the result is improved again.
  Equal input gives an equal plan.
"""

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
