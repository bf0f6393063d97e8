"""Process groups of the ranks that train together."""

from datetime import timedelta

import torch
import torch.distributed as dist

from embershard.sharding import ShardingEnv

TIMEOUT = timedelta(seconds=20)
HALVES = [[0, 1], [2, 3]]


def sums_of_halves(_):
    """Sum of the ranks' numbers in each group of an environment of half the ranks."""
    halves = [dist.new_group(ranks, timeout=TIMEOUT) for ranks in HALVES]
    sums = []
    for _ in range(2):  # A second environment of the same ranks gets new groups.
        env = ShardingEnv.from_process_group(halves[dist.get_rank() // 2], timeout=TIMEOUT)
        for group in (env.process_group, env.input_group, env.output_group, env.checkpoint_group):
            number = torch.tensor(dist.get_rank())
            dist.all_reduce(number, group=group)
            sums.append(int(number))
    return env.rank, env.world_size, env.cross_group, sums


def sums_across_hosts(_):
    """Sum of the numbers of the ranks at this rank's place in their hosts, and sum of all."""
    env = ShardingEnv.from_process_group(None, timeout=TIMEOUT, local_size=2)
    sums = []
    for group in (env.cross_group, env.output_group):
        number = torch.tensor(dist.get_rank())
        dist.all_reduce(number, group=group)
        sums.append(int(number))
    return env.local_size, sums


def test_disjoint_groups_have_environments_at_the_same_time(workers):
    first, second = [1] * 8, [5] * 8
    assert workers.run(4, sums_of_halves) == [
        (0, 2, None, first),
        (1, 2, None, first),
        (0, 2, None, second),
        (1, 2, None, second),
    ]


def test_each_place_of_the_hosts_has_a_group(workers):
    assert workers.run(4, sums_across_hosts) == [(2, [2, 6]), (2, [4, 6])] * 2
