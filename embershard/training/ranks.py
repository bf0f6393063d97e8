"""The ranks of a run that torchrun started, or a single process."""

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
"""Index of the start time among the fields of ``/proc/<pid>/stat`` after the name."""
OFFERED_NAME = "embershard/offer"
POLL_SECONDS = 0.01
MESSAGE_WAIT_SECONDS = 3.0
"""Longest wait of a rank that ends for messages of the others."""
LOST_PREFIX = "lost "
"""Prefix of the message of a rank whose collective failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    env: ShardingEnv | None
    """None if this is a single process without torchrun."""

    job: str | None
    """Name of the torchrun process that started this rank. It stays when torchrun restarts the
    ranks, and differs in any other job. None if there is no torchrun."""

    store: Store | None = None
    """Store of these ranks, separate from that of ranks before a restart."""

    @property
    def rank(self) -> int:
        return 0 if self.env is None else self.env.rank

    def on_gpus(self) -> Ranks:
        """The ranks with a GPU each, which becomes the current one. Raises InputError, the same on
        every rank, if a host has fewer GPUs than ranks."""
        assert self.env is not None, "ranks_of_torchrun refuses a single process"
        return replace(self, env=replace(self.env, device=self.agree(own_gpu)))

    @property
    def title_suffix(self) -> str:
        """``, N ranks`` for a title; empty for a single process."""
        return "" if self.env is None else f", {self.env.world_size} ranks"

    def first_on_rank_0(self, load: Callable[[], Loaded]) -> Loaded:
        """Load on rank 0, then on the others, which use its download. Raises InputError if some
        rank cannot; the same message on every rank. A single process raises what ``load`` does."""
        if self.env is None:
            return load()
        loaded = list[Loaded]()
        from_rank_0(self.env.process_group, lambda: loaded.append(load()))
        return self.agree(lambda: loaded[0] if loaded else load())

    def agree(
        self, build: Callable[[], Loaded], *, error: type[EmbershardError] = InputError
    ) -> Loaded:
        """Build something on every rank; it may differ. Raises ``error`` if some rank cannot; the
        same message on every rank. A single process raises what ``build`` does."""
        group = None if self.env is None else self.env.process_group
        return agree(group, build, error=error)

    def final_message(self, error: BaseException, message: str) -> str | None:
        if self.env is None or self.store is None:
            return message
        is_lost = isinstance(error, LostRankError)
        message = error.cause if isinstance(error, LostRankError) else message
        try:
            ranks = self.env.rank, self.env.world_size
            return shared_message(self.store, *ranks, message, is_lost=is_lost)
        except RuntimeError:  # torchrun, which holds the store, has ended.
            return f"rank {self.env.rank}: {message}"


@contextmanager
def ranks_of_torchrun(device: str = "cpu") -> Iterator[Ranks]:
    """The ranks that torchrun started, or a single process without torchrun, which raises
    InputError for cuda. With ``device`` cuda, tensors on GPUs travel over NCCL, and
    ``Ranks.on_gpus`` chooses the GPU of each rank. All others travel over gloo. Raises
    LostRankError if a collective failed in the block."""
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
    own = PrefixStore(_agreed_name(store, rank, world_size), store)
    on_gpus = device == "cuda" and torch.cuda.is_available()  # If not, ``own_gpu`` refuses it.
    backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
    dist.init_process_group(backend, store=own, rank=rank, world_size=world_size, timeout=TIMEOUT)
    with named_by_caller(), collective(dist.group.WORLD):  # ``shared_message`` names the ranks.
        env = ShardingEnv.from_process_group(dist.group.WORLD)
        yield Ranks(env=env, job=_job(), store=own)
        # After a failure this would wait for collectives, so no ``finally``.
        dist.destroy_process_group()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end this process at once: a wait in C++ calls no handler."""
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = {number: signal.getsignal(number) for number in stops}
    replaced = {number: action for number, action in handlers.items() if callable(action)}
    try:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)
        yield
    finally:
        for number, action in replaced.items():
            signal.signal(number, action)


def own_gpu() -> torch.device:
    """The GPU of this rank's place in its host, which becomes the current one."""
    device_of("cuda")  # Raises if torch sees no GPU.
    place, ranks = int(os.environ["LOCAL_RANK"]), local_world_size(1)
    count = torch.cuda.device_count()
    if count < ranks:
        raise InputError(
            f"device cuda: expected {ranks} GPUs, one for each rank of this host, got {count}"
        )
    torch.cuda.set_device(place)
    return torch.device("cuda", place)


def _job() -> str:
    """A name of torchrun's process. Its run id is not enough: by default all have ``none``."""
    agent = os.getppid()
    fields = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()
    boot = BOOT.read_text().strip()
    return f"{os.environ[LAUNCHED]} {socket.gethostname()} {boot} {agent} {fields[START_TIME]}"


def _agreed_name(store: Store, rank: int, world_size: int) -> str:
    """A name that the processes agree on which torchrun started together. torchrun keeps its store
    over restarts, with the addresses of ended processes, to which gloo would connect. So rank 0
    offers a name, the others answer with names of their own, and they take the offer once rank 0
    has repeated their names."""
    mine = uuid.uuid4().hex
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    if rank == 0:
        store.set(OFFERED_NAME, mine)
        answers = [f"{mine}/{other}" for other in range(1, world_size)]
        # Polled, since no signal ends the process in Store.wait.
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
        if store.check([OFFERED_NAME]):
            offered: str = store.get(OFFERED_NAME).decode()
            store.set(f"{offered}/{rank}", mine)
            every = f"{offered}/all"
            if store.check([every]) and mine in store.get(every).decode().split():
                return offered
        time.sleep(POLL_SECONDS)
    raise InputError(f"rank {rank}: expected rank 0 to start within {TIMEOUT}, it did not")


def shared_message(
    store: Store, rank: int, world_size: int, message: str, *, is_lost: bool = False
) -> str | None:
    """The text that this rank prints before it ends with ``message``; None if another prints it.
    The rank waits up to 3 s for the messages of the others. The first of the ranks with the same
    message prints it, and names these ranks unless all have it. If ``is_lost``, a collective
    failed, which is printed only if no rank has another message."""
    ranks = range(world_size)
    keys = {other: f"ended/{other}" for other in ranks}
    store.set(keys[rank], LOST_PREFIX * is_lost + message)
    deadline = time.monotonic() + MESSAGE_WAIT_SECONDS
    while not store.check([*keys.values()]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    messages = given_texts(store, keys)
    lost = [other for other, text in messages.items() if text.startswith(LOST_PREFIX)]
    if is_lost:
        same = lost if len(lost) == len(messages) else []
        shown = failed_message(lost, [other for other in ranks if other not in messages], message)
    else:
        same = [other for other, text in messages.items() if text == message]
        shown = message if len(same) == world_size else f"{named_ranks(same)}: {message}"
    if same[:1] != [rank]:
        return None
    # A rank that did not wait for this one may have printed it.
    printed = f"printed/{hashlib.sha256(message.encode()).hexdigest()}"
    return shown if store.add(printed, 1) == 1 else None
