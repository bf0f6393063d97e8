"""Optimizers with two moments have no kernels on CPU. Their state is written by hand here, as
partial row-wise Adam has it, and is then saved and loaded like any other."""

import torch

from embershard.sharding import column_wise, load_state, row_wise, save_state, table_wise
from tests.sharding.cases import plan_of, sharded
from tests.sharding.reference import make_case

MOMENTS = ("momentum1", "momentum2")


def first_moment(shard):
    """A number for each value, from its row and column in the table."""
    rows, columns = (torch.arange(*span) for span in (shard.rows, shard.columns))
    return rows[:, None] + columns / 1024


def second_moment(shard):
    """A number for each row, from the row and the first column of the shard."""
    return torch.arange(*shard.rows) + shard.columns[0] / 1024


def with_moments(env, case, plan, fill=False):
    """A model and its shards, which have two moments."""
    parallel = sharded(env, case, plan)
    shards = parallel.module["sparse"].local_shards()
    for local in shards:
        moments = first_moment(local.shard), second_moment(local.shard)
        local.state.update(zip(MOMENTS, moments, strict=True))
        if not fill:
            for moment in moments:
                moment.fill_(torch.nan)
    return parallel, shards


def save_moments(env, case, plan, folder):
    parallel, _ = with_moments(env, case, plan, fill=True)
    save_state(parallel, folder)


def load_moments(env, case, plan, folder):
    parallel, shards = with_moments(env, case, plan)
    messages = load_state(parallel, folder)
    return messages, [(shard.shard, *(shard.state[name] for name in MOMENTS)) for shard in shards]


def test_both_moments_load_under_another_plan(workers, tmp_path):
    case = make_case(2, sizes=[3, 4], steps=0, optimizer="rowwise_adagrad")
    columns = plan_of(case, column_wise(), words=table_wise(rank=1))
    workers.run(2, save_moments, case, columns, tmp_path / "state")
    swapped = plan_of(case, column_wise(ranks=[1, 0]), words=row_wise())
    for messages, shards in workers.run(2, load_moments, case, swapped, tmp_path / "state"):
        assert messages == []
        assert len(shards) == 3
        for shard, first, second in shards:
            assert torch.equal(first, first_moment(shard))
            assert torch.equal(second, second_moment(shard))
