"""Ranks of sharded training as a side, under ``torchrun``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.checkout import PEER_PYTHON, ROOT, Checkout, Command
from benchmarks.harness import Block, Session
from benchmarks.processes import child_process

WORKER: Final = "benchmarks.workers.sharded_training"
PEER_WORKER: Final = "benchmarks.peers.torchrec_sharded"


def launch(ranks: int) -> list[str]:
    """Arguments of Python that start a module on several ranks."""
    started = f"-W ignore -m torch.distributed.run --standalone --nproc-per-node {ranks} -m"
    return started.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Training on several ranks, one thread each; rank 0 answers for all."""

    part: str
    plan: str
    tables: int
    ranks: int
    seconds: float = 1.5
    is_peer: bool = False

    def start(self, session: Session, checkout: Checkout) -> Block:
        """Starts all ranks; see `benchmarks.sharded_step.Case`."""
        python, folder = checkout.python, checkout.root
        if self.is_peer:
            python, folder = str(PEER_PYTHON), ROOT
        case = (self.part, self.plan, str(self.tables))
        worker = PEER_WORKER if self.is_peer else WORKER
        command = Command((python, *launch(self.ranks), worker, *case), folder)
        return session.enter(
            child_process(command, environment={"OMP_NUM_THREADS": "1"}, seconds=self.seconds)
        )
