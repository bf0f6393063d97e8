"""Cases of four ranks, of which two act as another host; see workers.py."""

from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch.distributed as dist

from embershard.sharding import ShardingEnv
from tests.sharding.cases import collection_of, features_of, shard, train
from tests.sharding.reference import make_case
from tests.sharding.test_embeddingbag import plan_of

RANKS, LOCAL = 4, 2
SIZES = [5, 3, 0, 4]
KINDS = ["table_row_wise", "grid_shard", "row_wise", "mixed"]
POOLINGS = [(pooling, is_weighted) for pooling in ("SUM", "MEAN") for is_weighted in (False, True)]
SETTINGS = [
    (kind, *POOLINGS[(place + shift) % 4], optimizer)
    for place, kind in enumerate(KINDS)
    for shift, optimizer in enumerate(("sgd", "rowwise_adagrad", "adagrad"))
]
"""Each kind with each optimizer, and with three of the four poolings."""
COLLECTIVE_SECONDS = 60


def case_of(pooling, is_weighted, optimizer):
    return make_case(
        RANKS, pooling=pooling, is_weighted=is_weighted, optimizer=optimizer, sizes=SIZES
    )


def cross_host_bytes(env, case, kind):
    """Bytes that this rank sends to the other host in a step: of vectors, and of their
    gradients."""
    module = shard(env, collection_of(case), plan_of(case, kind, RANKS))
    features = features_of(case, case.batches[0][env.rank])
    with counted_bytes(env) as forward:
        output = module(features).values()
    with counted_bytes(env) as backward:
        output.sum().backward()
    return sum(forward), sum(backward)


@contextmanager
def counted_bytes(env):
    """Yields a list that collects the bytes of each part that is sent to another host."""
    sent, original = [], dist.all_to_all_single

    def counting(output, values, *splits, group, **kwargs):
        if group in (env.output_group, env.cross_group):
            for rank, count in zip(dist.get_process_group_ranks(group), splits[1], strict=True):
                if rank // LOCAL != env.rank // LOCAL:
                    sent.append(count * values.element_size())
        return original(output, values, *splits, group=group, **kwargs)

    dist.all_to_all_single = counting
    try:
        yield sent
    finally:
        dist.all_to_all_single = original


def results_of_hosts(env):
    """Sizes of the hosts, results of training with each of SETTINGS, and bytes between the
    hosts."""
    timeout = timedelta(seconds=COLLECTIVE_SECONDS)
    group = env.process_group
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCAL_WORLD_SIZE", str(LOCAL))  # torchrun sets it to this value.
        hosts = ShardingEnv.from_process_group(group, timeout=timeout)
    flat = ShardingEnv.from_process_group(group, timeout=timeout, local_size=RANKS)
    results = {"local_sizes": (hosts.local_size, flat.local_size)}
    for setting in SETTINGS:
        kind, *arguments = setting
        case = case_of(*arguments)
        results[setting] = train(hosts, case, plan_of(case, kind, RANKS))
    case = make_case(RANKS, sizes=[4] * RANKS, steps=1)
    for name, ranks, kind in (
        ("reduced", hosts, "table_row_wise"),
        ("unreduced", flat, "table_row_wise"),
        ("flat row_wise", flat, "row_wise"),
    ):
        results[name] = cross_host_bytes(ranks, case, kind)
    return results
