"""A rank that is killed in mid-step ends the others with an error."""

import multiprocessing
import os
import signal
import traceback
from datetime import timedelta

import pytest

from embershard.sharding import construct_module_sharding_plan, row_wise
from tests.sharding.cases import collection_of, features_of, model_parallel
from tests.sharding.reference import make_case

RANKS, KILLED = 3, 1
COLLECTIVE_SECONDS, DEADLINE_SECONDS = 30, 90
CASE = make_case(RANKS, sizes=[4, 2, 3], steps=3)


@pytest.mark.parametrize("moment", ["forward", "backward"])
def test_a_killed_rank_ends_the_others_with_an_error(tmp_path, moment):
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=train_and_kill, args=(rank, str(tmp_path), moment), daemon=True)
        for rank in range(RANKS)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join(DEADLINE_SECONDS)
        codes = [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.join(DEADLINE_SECONDS)
    said = [each.read_text() for each in sorted(tmp_path.glob("*.error"))]
    assert codes == [1, -signal.SIGKILL, 1], said
    assert len(said) == RANKS - 1
    for text in said:
        assert "RuntimeError" in text
        assert "step 2" in text


def train_and_kill(rank, folder, moment):
    import torch
    import torch.distributed as dist

    from embershard.sharding import ShardingEnv

    torch.set_num_threads(1)
    timeout = timedelta(seconds=COLLECTIVE_SECONDS)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS, timeout=timeout)
    env = ShardingEnv.from_process_group(dist.group.WORLD, timeout=timeout)
    plan = construct_module_sharding_plan(
        collection_of(CASE, "meta"),
        dict.fromkeys(["users", "items", "words"], row_wise()),
        world_size=RANKS,
    )
    parallel = model_parallel(env, CASE, [plan, plan])

    def kill(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    for step, ranks in enumerate(CASE.batches):
        if (rank, step) == (KILLED, 2) and moment == "forward":
            # After the exchange of inputs, before that of the second collection's outputs.
            parallel.module.second.register_forward_pre_hook(kill)
        try:
            first, second = parallel(features_of(CASE, ranks[rank]))
            if (rank, step) == (KILLED, 2):
                kill()
            (parallel.module.scale * (first.sum() + second.sum())).sum().backward()
        except Exception:
            with open(f"{folder}/{rank}.error", "w") as file:
                file.write(f"step {step}\n{traceback.format_exc()}")
            raise
