"""A training step of *small*, fused, beside TorchRec's collections, fused and plain."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.children import PEER_PYTHON, child_side
from benchmarks.harness import About, Row, Side, compare, pinned
from benchmarks.peer_files import write_batch, write_model
from benchmarks.rows.training_step import WHAT, batch, fused_side
from embershard.data import workload

__all__ = ["PEERS", "measure"]

PEERS = True


def measure() -> list[Row]:
    """One core for each."""
    with TemporaryDirectory() as folder, pinned({0}):
        write_model(workload("small"), Path(folder))
        write_batch(workload("small"), batch(), Path(folder))
        ours = fused_side()
        return [_beside(ours, kind, Path(folder)) for kind in ("fused", "plain")]


def _beside(ours: Side, kind: str, folder: Path) -> Row:
    module = "benchmarks.peers.torchrec_training"
    command: list[str | Path] = [PEER_PYTHON, "-W", "ignore", "-m", module, folder, kind]
    with child_side(f"TorchRec, {kind} tables", command, cores=[{0}]) as peer:
        about = About(name=f"training_peer/small_{kind}", what=WHAT, unit="examples/s")
        return compare(about, ours=ours, theirs=peer)
