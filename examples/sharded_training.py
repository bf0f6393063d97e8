"""Trains a model whose tables lie on two processes:

torchrun --standalone --nproc-per-node 2 examples/sharded_training.py
"""

import torch
import torch.distributed as dist
from torch import nn

from embershard.jagged import KeyedJaggedTensor
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.sharding import (
    DistributedModelParallel,
    RowWiseAdagrad,
    ShardingPlan,
    apply_optimizer_in_backward,
    construct_module_sharding_plan,
    row_wise,
    table_wise,
)


class Model(nn.Module):
    """The sum of what two tables and a linear layer say."""

    def __init__(self) -> None:
        super().__init__()
        self.sparse = EmbeddingBagCollection(
            [
                EmbeddingBagConfig(
                    name="users", num_embeddings=100_000, embedding_dim=16, feature_names=["user"]
                ),
                EmbeddingBagConfig(
                    name="items", num_embeddings=1_000, embedding_dim=16, feature_names=["seen"]
                ),
            ],
            device="meta",
        )
        self.over = nn.Linear(32, 1)

    def forward(self, features: KeyedJaggedTensor) -> torch.Tensor:
        """Logits, ``(B, 1)``."""
        logits: torch.Tensor = self.over(self.sparse(features).values())
        return logits


def main() -> None:
    """Trains 50 steps on one batch a rank."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = Model()
    apply_optimizer_in_backward(RowWiseAdagrad, model.sparse.parameters(), {"lr": 0.1})
    cuts = {"users": row_wise(), "items": table_wise(rank=1)}
    plan = ShardingPlan({"sparse": construct_module_sharding_plan(model.sparse, cuts)})
    parallel = DistributedModelParallel(model, plan=plan)
    optimizer = torch.optim.Adagrad(parallel.parameters(), lr=0.1)

    users, seen = torch.randint(100_000, (64,)), torch.randint(1_000, (192,))
    lengths = torch.cat([torch.ones(64, dtype=torch.int64), torch.full((64,), 3)])
    batch = KeyedJaggedTensor(["user", "seen"], torch.cat([users, seen]), lengths=lengths)
    labels = (users % 2).float().unsqueeze(1)
    for step in range(50):
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(parallel(batch), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if dist.get_rank() == 0 and step in (0, 49):
            print(f"step {step}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
