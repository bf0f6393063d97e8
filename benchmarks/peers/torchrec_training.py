"""TorchRec's training step as a child, of a model and a batch that lie in a folder; units are
examples.

python -m benchmarks.peers.torchrec_training FOLDER fused|plain
"""

import sys
from pathlib import Path

import torch
from torchrec import EmbeddingBagCollection
from torchrec.modules.fused_embedding_modules import FusedEmbeddingBagCollection

from benchmarks.child import answer
from benchmarks.peers.torchrec_model import batch_in, model_in, tables_in
from benchmarks.training_step import RATE, sgd_step


def main() -> None:
    """Set up, then serve blocks."""
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    assert kind in ("fused", "plain")
    tables, device = tables_in(folder), torch.device("cpu")
    if kind == "fused":
        collection = FusedEmbeddingBagCollection(
            tables, optimizer_type=torch.optim.SGD, optimizer_kwargs={"lr": RATE}, device=device
        )
    else:
        collection = EmbeddingBagCollection(tables=tables, device=device)
    torch.set_num_threads(1)
    step, batch = sgd_step(model_in(folder, collection)), batch_in(folder)
    answer("examples", lambda: step(*batch))


if __name__ == "__main__":
    main()
