"""Worker processes that run named cases: one launch for all tests.

Four ranks over gloo. A case for fewer ranks runs on the first of them, in its own group.
"""

import multiprocessing
import traceback
from datetime import timedelta

DEADLINE_SECONDS = 180
END_SECONDS = 20
COLLECTIVE_SECONDS = 30
RANKS = 4


def fork_context():
    """Context that forks processes from a server process. The server has imported torch, which
    takes seconds, and runs no threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "embershard.sharding", "tests.sharding.cases"])
    return context


class Workers:
    """Runs cases in worker processes, which start with the first case."""

    def __init__(self, folder):
        self._folder, self._launches = folder, 0
        self._workers = []

    def run(self, world_size, case, *arguments):
        """``case(env, *arguments)`` on ranks 0 .. world_size - 1.

        Args:
            world_size: 1, 2 or 4.
            case: a function of a module, which workers import by name.

        Returns:
            The results of all ranks.

        Raises:
            AssertionError: the case raised on some rank, or did not return in time.
        """
        self._start()
        chosen = self._workers[:world_size]
        for _, pipe in chosen:
            pipe.send((world_size, case, arguments))
        answers = []
        try:
            for rank, (_, pipe) in enumerate(chosen):
                if not pipe.poll(DEADLINE_SECONDS):
                    raise AssertionError(f"rank {rank}: no answer after {DEADLINE_SECONDS} s")
                answers.append(pipe.recv())
        except BaseException:  # Also if the test is interrupted: no answer may reach the next case.
            self.stop(end_seconds=0)
            raise
        failures = [f"rank {rank}: {text}" for rank, (text, _) in enumerate(answers) if text]
        if failures:
            self.stop()  # Their collectives may be out of step.
            raise AssertionError("\n".join(failures))
        return [result for _, result in answers]

    def stop(self, end_seconds=END_SECONDS):
        """Ends idle ranks, so that a coverage run counts their lines, and kills ranks that run a
        case."""
        for _, pipe in self._workers:
            pipe.close()
        for process, _ in self._workers:
            process.join(end_seconds)
            process.kill()
            process.join(DEADLINE_SECONDS)
        self._workers = []

    def _start(self):
        if self._workers:
            return
        self._launches += 1
        store = self._folder / f"store.{self._launches}"
        context = fork_context()
        for rank in range(RANKS):
            own_end, worker_end = context.Pipe()
            process = context.Process(
                target=_work, args=(rank, str(store), worker_end), daemon=True
            )
            process.start()
            worker_end.close()
            self._workers.append((process, own_end))


def _work(rank, store, pipe):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    timeout = timedelta(seconds=COLLECTIVE_SECONDS)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS, timeout=timeout
    )
    envs = {world_size: _env(world_size, rank, timeout) for world_size in (1, 2, 4)}
    while True:
        try:
            world_size, case, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("", case(envs[world_size], *arguments)))
        except Exception:
            pipe.send((traceback.format_exc(), None))


def _env(world_size, rank, timeout):
    """Environment of the first ``world_size`` ranks. Every worker must create the groups, even if
    it is in none of them."""
    import torch.distributed as dist

    from embershard.sharding import ShardingEnv

    groups = [dist.new_group(list(range(world_size)), timeout=timeout) for _ in range(4)]
    return ShardingEnv(
        world_size=world_size,
        rank=rank,
        process_group=groups[0],
        input_group=groups[1],
        output_group=groups[2],
        checkpoint_group=groups[3],
    )
