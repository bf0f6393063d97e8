"""Plans by hand, for ``EmbeddingShardingPlanner.price``: which have costs, and their placement."""

from collections.abc import Sequence

from torch import nn

from embershard.errors import InputError
from embershard.planner.checked_arguments import check_kind
from embershard.planner.cost import FUSED
from embershard.planner.host_memory import HOST_KERNELS
from embershard.planner.options import DATA_PARALLEL, Option, priced, replicas
from embershard.planner.starting_placements import Placement
from embershard.planner.topology import Topology
from embershard.planner.training_problem import TrainingProblem
from embershard.sharding import EmbeddingModuleShardingPlan, ShardingPlan
from embershard.sharding.plan_checks import planned_collections
from embershard.sharding.sharders import Sharder, shardable
from embershard.sharding.types import check_module_plan, tables_of


def check_priced(
    plan: ShardingPlan, module: nn.Module, sharders: Sequence[Sharder], topology: Topology
) -> None:
    """Whether a plan is of a model and a topology, and its costs are measured.

    Raises:
        InputError: it is not.
    """
    check_kind("price: plan", plan, ShardingPlan, "a ShardingPlan")
    for _ in planned_collections(module, plan, sharders):  # Each is one of the model.
        pass
    kernels = (FUSED, *HOST_KERNELS) if topology.host_memory_rate else (FUSED,)
    for path, collection, _ in shardable(module, sharders):
        where, cuts = f"module {path!r}", plan.plan.get(path, EmbeddingModuleShardingPlan())
        check_module_plan(
            cuts,
            tables_of(collection),
            world_size=topology.world_size,
            where=where,
            device=topology.compute_device,
        )
        for name, each in cuts.items():
            if each.compute_kernel not in kernels and each.sharding_type != DATA_PARALLEL:
                raise InputError(
                    f"price: {where}: table {name!r}: compute_kernel: expected 'fused' of "
                    f"{each.sharding_type}, got {each.compute_kernel!r}, whose costs are not "
                    "measured"
                )


def placed_by(plan: ShardingPlan, problem: TrainingProblem) -> tuple[list[list[Option]], Placement]:
    """The one cut of each table, and where its shards lie."""
    options, ranks = list[list[Option]](), list[list[int]]()
    for table in problem.tables:
        cut = plan.plan[table.path][table.name]
        if cut.sharding_type == DATA_PARALLEL:
            options.append([replicas(table, problem.work)])
            ranks.append(list(range(problem.topology.world_size)))
            continue
        spans = tuple((each.rows, each.columns) for each in cut.sharding_spec)
        kernel = cut.compute_kernel
        options.append([priced(table, problem.work, cut.sharding_type, spans, kernel)])
        ranks.append([each.devices[0] for each in cut.sharding_spec])
    return options, Placement([0] * len(ranks), ranks)
