"""What fusing the optimizer into the tables' backward pass gains, a training step of *small*."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.harness import Row, Side, compare, loop
from benchmarks.training import BATCH, RATE, lists, stepping
from embershard.data import workload
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM
from embershard.modules import EmbeddingBagCollection, FusedEmbeddingBagCollection

__all__ = ["WHAT", "fused_side", "measure"]

WHAT = f"training step of {BATCH} examples, *small*, SGD, 1 thread"


def measure(folder: Path) -> list[Row]:
    """``folder`` is not used."""
    del folder
    plain = _side("plain torch", EmbeddingBagCollection(workload("small").tables()))
    row = compare("training_step/small", WHAT, "examples/s", ours=fused_side(), theirs=plain)
    return [row]


def fused_side() -> Side:
    """Tables that train in their backward pass."""
    tables = workload("small").tables()
    fused = FusedEmbeddingBagCollection(tables, optimizer="sgd", learning_rate=RATE)
    return _side("fused tables", fused)


def _side(name: str, tables: EmbeddingBagCollection | FusedEmbeddingBagCollection) -> Side:
    small = workload("small")
    torch.manual_seed(0)
    model = DLRM(tables, small.example_dense, small.dense_layers, small.over_layers)
    return loop(name, stepping(model, KeyedJaggedTensor(**lists())))
