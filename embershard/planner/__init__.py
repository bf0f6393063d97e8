"""Plans of training and of serving: measured costs, a search, a report; names follow TorchRec.

How ``EmbeddingShardingPlanner`` finds a plan:

1. Cost. Each shard of each cut gets seconds for lookup, update and messages. They are linear in
   ids, bags, distinct rows of a batch, and bytes of the cache lines that rows lie in. A row that
   is not in a cache of 2 MiB, or of 32 MiB, costs more. Che's approximation says how many are not.
   An update misses as many rows as its lookup, at most all distinct ones.
2. Bound. A linear program chooses fractions of cuts that fit the memory with the least work.
   Only cuts whose largest shard takes at most T seconds take part. Bisection finds the least T
   for which the work fits the ranks in T seconds: no plan of these cuts is faster.
3. Assignment. Shards in the order of decreasing cost go to the rank with memory that they load
   least; if memory runs out, by decreasing memory, then also to the rank that it fills most.
   Moves, swaps and finer cuts then shorten the busiest rank.
4. Perturbation, while the busiest rank takes over 1.01 of the bound. Two to four tables get random
   cuts, are placed anew and improved, at most 40 times a table. Equal input gives an equal plan.
5. Phases. Ranks wait for each other after lookups and after updates. A step takes the sum of the
   busiest ranks of both phases; moves and swaps shorten it.
6. Cheaper cuts. A table gets a cut of less work where no rank gets busier than the busiest one.
"""

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
