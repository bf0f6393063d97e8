"""A rank that is killed or hangs during a step ends the others with an error that names it."""

import os
import re
import signal
import traceback
from datetime import timedelta

import pytest

from embershard.sharding import construct_module_sharding_plan, row_wise
from tests.sharding.cases import collection_of, features_of, model_parallel
from tests.sharding.reference import make_case
from tests.sharding.workers import fork_context

RANKS, KILLED = 3, 1
COLLECTIVE_SECONDS, HANG_SECONDS, DEADLINE_SECONDS = 30, 15, 90
CASE = make_case(RANKS, sizes=[4, 2, 3], steps=3)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["forward", "backward", "hangs"])
def test_a_lost_rank_ends_the_others_with_an_error(tmp_path, moment):
    context = fork_context()
    processes = [
        context.Process(target=train_and_kill, args=(rank, str(tmp_path), moment), daemon=True)
        for rank in range(RANKS)
    ]
    try:
        for process in processes:
            process.start()
        for rank in {*range(RANKS)} - {KILLED}:
            processes[rank].join(DEADLINE_SECONDS)
    finally:
        for process in processes:
            process.kill()
            process.join(DEADLINE_SECONDS)
    codes = [process.exitcode for process in processes]
    messages = {int(path.stem): path.read_text() for path in tmp_path.glob("*.error")}
    assert codes == [1, -signal.SIGKILL, 1], messages
    assert messages.keys() == {0, 2}
    for rank, message in messages.items():
        assert "step 2" in message
        named = re.search(rf"Error: rank {rank}: a collective failed; (ranks? .+) ended", message)
        assert named is not None, message
        assert str(KILLED) in named[1], message
        assert str(rank) not in named[1], message


def train_and_kill(rank, folder, moment):
    import torch
    import torch.distributed as dist

    from embershard.sharding import ShardingEnv

    torch.set_num_threads(1)
    timeout = timedelta(seconds=COLLECTIVE_SECONDS)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS, timeout=timeout)
    if moment == "hangs":
        timeout = timedelta(seconds=HANG_SECONDS)
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
            # The rank ends between the exchange of inputs and that of the second collection's
            # outputs.
            parallel.module.second.register_forward_pre_hook(kill)
        if (rank, step, moment) == (KILLED, 2, "hangs"):
            signal.pause()
        try:
            first, second = parallel(features_of(CASE, ranks[rank]))
            if (rank, step) == (KILLED, 2):
                kill()
            (parallel.module.scale * (first.sum() + second.sum())).sum().backward()
        except Exception:
            with open(f"{folder}/{rank}.error", "w") as file:
                file.write(f"step {step}\n{traceback.format_exc()}")
            raise
