"""Training steps of *small*: ``python -m benchmarks.workers.training fused|plain EXAMPLES``. Blocks
as `benchmarks.child` says."""

import sys

import numpy as np
import torch

from benchmarks.child import answer
from benchmarks.training_step import RATE, sgd_step
from benchmarks.workloads import workload
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM
from embershard.modules import EmbeddingBagCollection, FusedEmbeddingBagCollection


def main(kind: str, examples: int) -> None:
    """Serves blocks of steps over one batch."""
    small = workload("small")
    request = small.request(np.random.default_rng(0), examples)
    tables = (
        FusedEmbeddingBagCollection(small.tables(), optimizer="sgd", learning_rate=RATE)
        if kind == "fused"
        else EmbeddingBagCollection(small.tables())
    )
    torch.manual_seed(0)
    model = DLRM(tables, small.example_dense, small.dense_layers, small.over_layers)
    features = KeyedJaggedTensor(
        [each.name for each in small.sparse],
        torch.from_numpy(request.values),
        lengths=torch.from_numpy(request.lengths),
    )
    torch.set_num_threads(1)
    step, dense = sgd_step(model), torch.from_numpy(request.example_dense)
    answer("examples", lambda: step(dense, features))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
