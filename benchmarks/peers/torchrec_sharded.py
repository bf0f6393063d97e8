"""A rank of sharded training with TorchRec. Run it under ``torchrun`` as
``python -m benchmarks.peers.torchrec_sharded step|sparse PLAN TABLES``, see
`benchmarks.sharded_step`.
"""

from collections.abc import Mapping

import torch.distributed as dist
import torchrec
from torch import nn
from torchrec.distributed import model_parallel, sharding_plan
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.models.dlrm import DLRM
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from benchmarks.sharded_step import RATE, Case, Library, serve_steps, start_rank

TORCHREC = Library(torchrec, DLRM, plans=sharding_plan, distributed=model_parallel)


def main() -> None:
    case = Case.from_arguments()
    start_rank()
    model, tables = TORCHREC.build(case)
    apply_optimizer_in_backward(RowWiseAdagrad, tables.parameters(), {"lr": RATE})
    serve_steps(case, sharded_model(model, tables, case.cuts), TORCHREC)
    dist.destroy_process_group()


def sharded_model(
    model: nn.Module, tables: nn.Module, cuts: Mapping[str, tuple[str, int]]
) -> nn.Module:
    """Shard over all ranks. ``cuts``: table name -> sharding type, and the table's position."""
    sharded: nn.Module = TORCHREC.shard(model, tables, cuts, EmbeddingBagCollectionSharder())
    return sharded


if __name__ == "__main__":
    main()
