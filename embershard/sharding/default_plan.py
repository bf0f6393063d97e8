"""``default_plan``: the planner's plan of a model that was given none."""

from collections.abc import Sequence

from torch import nn

from embershard.sharding.environment import ShardingEnv, from_rank_0, local_world_size
from embershard.sharding.sharders import Sharder
from embershard.sharding.types import ShardingPlan


def default_plan(
    module: nn.Module, sharders: Sequence[Sharder], env: ShardingEnv, *, count_accesses: bool
) -> ShardingPlan:
    """The plan of ``EmbeddingShardingPlanner`` with its defaults. Rank 0 plans and prints the
    report; every rank calls this.

    Raises:
        InputError: the planner refuses: the same message on every rank.
    """

    def plan_here() -> str:
        # The planner is built on this component: it is imported when it is used.
        from embershard.planner import EmbeddingShardingPlanner, Topology

        local_size = env.local_size or local_world_size(env.world_size)
        if env.world_size % local_size:
            local_size = env.world_size
        topology = Topology(env.world_size, env.device.type, local_world_size=local_size)
        planner = EmbeddingShardingPlanner(topology, count_accesses=count_accesses)
        plan = planner.plan(module, sharders)
        if any(plan.plan.values()):
            print(planner.report.to_text(), flush=True)
        return plan.to_json()

    return ShardingPlan.from_json(from_rank_0(env.process_group, plan_here))
