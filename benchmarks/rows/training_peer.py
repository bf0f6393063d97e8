"""A training step of *small*, fused, beside TorchRec's collections, fused and plain."""

from __future__ import annotations

from pathlib import Path

from benchmarks.children import PEER_PYTHON, child_side
from benchmarks.harness import Row, Side, compare, pinned
from benchmarks.rows.training_step import WHAT, fused_side

__all__ = ["PEERS", "measure"]

PEERS = True


def measure(folder: Path) -> list[Row]:
    """``folder`` is not used."""
    del folder
    with pinned({0}):
        ours = fused_side()
        return [_beside(ours, "fused"), _beside(ours, "plain")]


def _beside(ours: Side, kind: str) -> Row:
    module = "benchmarks.peers.torchrec_training"
    command: list[str | Path] = [PEER_PYTHON, "-W", "ignore", "-m", module, kind]
    with child_side(f"TorchRec, {kind} tables", command, cores=[{0}]) as peer:
        return compare(f"training_peer/small_{kind}", WHAT, "examples/s", ours=ours, theirs=peer)
