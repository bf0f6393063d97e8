from collections.abc import Sequence

from torch import nn

from embershard.sharding.environment import ShardingEnv, from_rank_0, local_world_size
from embershard.sharding.sharders import Sharder
from embershard.sharding.types import ShardingPlan


def default_plan(
    module: nn.Module, sharders: Sequence[Sharder], env: ShardingEnv, *, count_accesses: bool
) -> ShardingPlan:
    """The plan that ``EmbeddingShardingPlanner`` makes by default. Rank 0 plans and prints the
    report. Every rank calls this. Raises InputError on every rank if the planner refuses."""

    def plan_here() -> str:
        # Imported late, since the planner imports this package.
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
