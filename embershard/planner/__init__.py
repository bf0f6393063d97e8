"""Plans of training and of serving: measured costs, a search, a report; names follow TorchRec.

One search serves both (``search`` has the constants):

1. Cost. Each shard of each cut gets seconds for lookup, update and messages. They are linear in
   ids, bags, distinct rows of a batch, and bytes of the cache lines that rows lie in. A row that
   is not in a cache of 2 MiB, or of 32 MiB, costs more. Che's approximation says how many are not.
   An update misses as many rows as its lookup, at most all distinct ones.
2. Bound. A linear program chooses fractions of cuts that fit the memory with the least work.
   Only cuts whose largest shard takes at most T seconds take part. Bisection finds the least T
   for which the work fits the ranks in T seconds: no plan of these cuts is faster.
3. Greedy start. Tables in the order of decreasing cost take the cheapest cut that fits, each shard
   on the rank that it loads least; if memory runs out, in the order of decreasing memory, then also
   on the rank that it fills most. Both kinds of memory are filled, the last resort are row ranges
   of every table over all ranks.
4. Local search. Ranks wait for each other after lookups and after updates, so a step takes the sum
   of the busiest ranks of both phases. Moves, swaps and other cuts shorten it. In training, while
   it takes over 1.01 of the bound, a few tables get random cuts and the result is improved, too.
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
