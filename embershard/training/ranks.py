"""The ranks of a run that torchrun started, or a process alone."""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from embershard.collectives import (
    collective,
    failed_message,
    given_texts,
    named_by_caller,
    named_ranks,
)
from embershard.errors import EmbershardError, InputError, LostRankError
from embershard.kernels import device_of
from embershard.sharding import ShardingEnv
from embershard.sharding.environment import TIMEOUT, agree, from_rank_0, local_world_size

Loaded = TypeVar("Loaded")

LAUNCHED = "TORCHELASTIC_RUN_ID"
PR_SET_PDEATHSIG = 1
BOOT = Path("/proc/sys/kernel/random/boot_id")
START_TIME = 19
"""Place of the start time in ``/proc/<pid>/stat``, after the name."""
OFFER = "embershard/offer"
POLL_SECONDS = 0.01
WORD_SECONDS = 3.0
"""After which a rank that ends expects no word of the others."""
LOST = "lost "
"""Before the message of a rank whose collective failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Those that train together."""

    env: ShardingEnv | None
    """None: this process alone."""

    job: str | None
    """Of the torchrun that started this rank: the same after it restarts the ranks, another in any
    other job. None: no torchrun."""

    store: Store | None = None
    """Of these ranks alone, apart from those that torchrun started before a restart."""

    @property
    def rank(self) -> int:
        """Of this process."""
        return 0 if self.env is None else self.env.rank

    def on_gpus(self) -> Ranks:
        """Each with a GPU of its own, from now on the current one.

        Raises:
            InputError: a host has none, or fewer than ranks: the same message on every rank.
        """
        assert self.env is not None, "ranks_of_torchrun refuses a process alone"
        return replace(self, env=replace(self.env, device=self.agree(own_gpu)))

    @property
    def text(self) -> str:
        """`` on N ranks``, for a title; empty for a process alone."""
        return "" if self.env is None else f", {self.env.world_size} ranks"

    def first_on_rank_0(self, load: Callable[[], Loaded]) -> Loaded:
        """Load on rank 0, then on the others, which find its download. Raises InputError if some
        rank cannot: the same message on every rank. A process alone raises what ``load`` does."""
        if self.env is None:
            return load()
        found: Loaded | None = None

        def first() -> None:
            nonlocal found
            found = load()

        from_rank_0(self.env.process_group, first)
        return self.agree(lambda: load() if found is None else found)

    def agree(
        self, build: Callable[[], Loaded], *, error: type[EmbershardError] = InputError
    ) -> Loaded:
        """Build something on every rank, which need not be the same. Raises ``error`` if some rank
        cannot: the same message on every rank. A process alone raises what ``build`` does."""
        group = None if self.env is None else self.env.process_group
        return agree(group, build, error=error)

    def last_words(self, error: BaseException, said: str) -> str | None:
        """What this rank prints before it ends: see ``said_once``."""
        if self.env is None or self.store is None:
            return said
        is_lost = isinstance(error, LostRankError)
        said = error.cause if isinstance(error, LostRankError) else said
        try:
            ranks = self.env.rank, self.env.world_size
            return said_once(self.store, *ranks, said, is_lost=is_lost)
        except RuntimeError:  # torchrun, which holds the store, has ended.
            return f"rank {self.env.rank}: {said}"


@contextmanager
def ranks_of_torchrun(device: str = "cpu") -> Iterator[Ranks]:
    """The ranks that torchrun started; a process alone without torchrun.

    Args:
        device: of tables and batches: cpu or cuda. cpu: collectives over gloo. cuda: tensors of
            GPUs travel over NCCL; ``Ranks.on_gpus`` gives each rank its own.

    Raises:
        InputError: cuda in a process alone.
        LostRankError: a collective failed in the block.
    """
    if LAUNCHED not in os.environ:
        if device == "cuda":
            raise InputError(
                "device cuda: expected ranks of torchrun (--nproc-per-node 1 will do), got a "
                "process alone"
            )
        yield Ranks(env=None, job=None)
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # When torchrun ends.
    with _ended_by_signals():
        store, rank, world_size = next(rendezvous("env://", timeout=TIMEOUT))
    own = PrefixStore(_meet(store, rank, world_size), store)
    on_gpus = device == "cuda" and torch.cuda.is_available()  # If not, ``own_gpu`` refuses it.
    backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
    dist.init_process_group(backend, store=own, rank=rank, world_size=world_size, timeout=TIMEOUT)
    with named_by_caller(), collective(dist.group.WORLD):  # ``said_once`` names them.
        env = ShardingEnv.from_process_group(dist.group.WORLD)
        yield Ranks(env=env, job=_job(), store=own)
        dist.destroy_process_group()  # Not after a failure: it waits for collectives.


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """In the block signals that say stop end this process at once: a wait in C++ calls no
    handler of Python's."""
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in stops}
    taken = {number: action for number, action in before.items() if callable(action)}
    if threading.current_thread() is not threading.main_thread():
        taken = {}
    try:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        yield
    finally:
        for number, action in taken.items():
            signal.signal(number, action)


def own_gpu() -> torch.device:
    """That of this rank's place in its host, from now on the current one."""
    device_of("cuda")  # Raises where torch sees none.
    place, ranks = int(os.environ["LOCAL_RANK"]), local_world_size(1)
    count = torch.cuda.device_count()
    if count < ranks:
        raise InputError(
            f"device cuda: expected {ranks} GPUs, one for each rank of this host, got {count}"
        )
    torch.cuda.set_device(place)
    return torch.device("cuda", place)


def _job() -> str:
    """torchrun's run id may be that of other jobs (``none`` by default), so its process counts."""
    agent = os.getppid()
    fields = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()
    boot = BOOT.read_text().strip()
    return f"{os.environ[LAUNCHED]} {socket.gethostname()} {boot} {agent} {fields[START_TIME]}"


def _meet(store: Store, rank: int, world_size: int) -> str:
    """A name that the processes which are started together agree on.

    torchrun keeps its store over restarts, so what ended processes wrote is still there: gloo
    would connect to their addresses. Rank 0 offers a name; the others answer with names of their
    own, and take the offer once rank 0 has repeated those.
    """
    mine = uuid.uuid4().hex
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    if rank == 0:
        store.set(OFFER, mine)
        answers = [f"{mine}/{other}" for other in range(1, world_size)]
        # Not Store.wait, in which no signal ends the process.
        while answers and not store.check(answers) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        if missing := [key for key in answers if not store.check([key])]:
            ranks = ", ".join(key.partition("/")[2] for key in missing)
            raise InputError(
                f"rank 0: expected ranks {ranks} to start within {TIMEOUT}, they did not"
            )
        store.set(f"{mine}/all", " ".join(store.get(key).decode() for key in answers))
        return mine
    while time.monotonic() < deadline:
        if store.check([OFFER]):
            offered: str = store.get(OFFER).decode()
            store.set(f"{offered}/{rank}", mine)
            every = f"{offered}/all"
            if store.check([every]) and mine in store.get(every).decode().split():
                return offered
        time.sleep(POLL_SECONDS)
    raise InputError(f"rank {rank}: expected rank 0 to start within {TIMEOUT}, it did not")


def said_once(
    store: Store, rank: int, world_size: int, said: str, *, is_lost: bool = False
) -> str | None:
    """What this rank prints before it ends because of ``said``; ``is_lost``: a ``LostRankError``.

    It waits up to 3 s for the messages of the others. The first of those that say the same prints
    it, and names them unless they are all. A failed collective is mentioned only if no rank says
    anything else. None: another rank prints it.
    """
    ranks = range(world_size)
    keys = {each: f"ended/{each}" for each in ranks}
    store.set(keys[rank], LOST * is_lost + said)
    deadline = time.monotonic() + WORD_SECONDS
    while not store.check([*keys.values()]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    given = given_texts(store, keys)
    lost = [each for each, text in given.items() if text.startswith(LOST)]
    if not is_lost:
        same = [each for each, text in given.items() if text == said]
        shown = said if len(same) == world_size else f"{named_ranks(same)}: {said}"
    else:
        same = lost if len(lost) == len(given) else []
        shown = failed_message(lost, [each for each in ranks if each not in given], said)
    if same[:1] != [rank]:
        return None
    # A rank that could not wait for this one may have printed it.
    printed = f"printed/{hashlib.sha256(said.encode()).hexdigest()}"
    return shown if store.add(printed, 1) == 1 else None
