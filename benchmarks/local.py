"""Sides that run in child processes: `LocalPredictor`, ranks of sharded training, and peers."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.checkout import PEER_PYTHON, ROOT, Checkout, Command
from benchmarks.harness import Block, Session
from benchmarks.packages import PackageSpec, Requests
from benchmarks.processes import CHILD_SECONDS, child_process

MERGE_EXAMPLES: Final = 256
"""Number of examples up to which a server merges requests by default."""

TUNED: Final = {"THP_MEM_ALLOC_ENABLE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """`LocalPredictor` in a child process, called sequentially."""

    package: PackageSpec
    requests: Requests
    threads: int = 1
    tables: str = "mmap"
    on_each_core: bool = False
    """Run one predictor for each core at the same time, instead of a single one."""

    merge_examples: int = 0
    """Most examples of a call with several requests. 0: no limit."""

    merge_requests: int = 1
    """Most requests of a call. 0: no limit."""

    environment: Mapping[str, str] = field(default_factory=dict)
    pause_us: float = 0.0

    cores: tuple[int, ...] = ()

    scores: Path | None = None

    seconds: float = CHILD_SECONDS
    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        options = asdict(self)
        options |= {"folder": str(checkout.package(self.package)), "scores": str(self.scores or "")}
        return Child(
            command=lambda _: checkout.module("benchmarks.workers.local", json.dumps(options)),
            cores=self.cores,
            environment=self.environment,
            seconds=self.seconds,
        ).start(session, checkout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A program with the line protocol of `benchmarks.child`."""

    command: Callable[[Checkout], Command]
    cores: tuple[int, ...] = (0,)

    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = CHILD_SECONDS
    is_peer: bool = True

    def start(self, session: Session, checkout: Checkout) -> Block:
        return session.enter_context(
            child_process(
                self.command(checkout),
                cores=self.cores,
                environment=self.environment,
                seconds=self.seconds,
            )
        )


def ranks(
    count: int, worker: str, *arguments: object, is_peer: bool = False, seconds: float = 1.5
) -> Child:
    """Ranks of sharded training under ``torchrun``, with one thread each. Rank 0 answers the
    blocks. Ranks of a peer run in ``.venv-peers``."""

    def command(checkout: Checkout) -> Command:
        python, folder = (str(PEER_PYTHON), ROOT) if is_peer else (checkout.python, checkout.root)
        return Command((python, *torchrun(count), worker, *map(str, arguments)), folder)

    environment = {"OMP_NUM_THREADS": "1"}
    return Child(
        command=command, cores=(), environment=environment, seconds=seconds, is_peer=is_peer
    )


def torchrun(ranks: int) -> list[str]:
    """Arguments of Python that run a module on several ranks. The module's name follows them."""
    arguments = f"-W ignore -m torch.distributed.run --standalone --nproc-per-node {ranks} -m"
    return arguments.split()
