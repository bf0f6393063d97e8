"""What fusing the optimizer into the tables' backward pass gains, a training step of *small*."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.harness import About, Row, Side, compare, loop
from benchmarks.training import RATE, stepping
from embershard.data import workload
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM
from embershard.modules import EmbeddingBagCollection, FusedEmbeddingBagCollection
from embershard.package import SampleRequest

__all__ = ["WHAT", "batch", "fused_side", "measure"]

EXAMPLES = 512
WHAT = f"training step of {EXAMPLES} examples, *small*, SGD, 1 thread"


def measure() -> list[Row]:
    """Fused beside plain."""
    plain = _side("plain torch", EmbeddingBagCollection(workload("small").tables()))
    about = About(name="training_step/small", what=WHAT, unit="examples/s")
    return [compare(about, ours=fused_side(), theirs=plain)]


def fused_side() -> Side:
    """Tables that train in their backward pass."""
    tables = workload("small").tables()
    fused = FusedEmbeddingBagCollection(tables, optimizer="sgd", learning_rate=RATE)
    return _side("fused tables", fused)


def batch() -> SampleRequest:
    """What every step is trained on."""
    return workload("small").request(np.random.default_rng(0), EXAMPLES)


def _side(name: str, tables: EmbeddingBagCollection | FusedEmbeddingBagCollection) -> Side:
    small, request = workload("small"), batch()
    torch.manual_seed(0)
    model = DLRM(tables, small.example_dense, small.dense_layers, small.over_layers)
    features = KeyedJaggedTensor(
        [each.name for each in small.sparse],
        torch.from_numpy(request.values),
        lengths=torch.from_numpy(request.lengths),
    )
    return loop(name, stepping(model, torch.from_numpy(request.example_dense), features))
