"""Your own model with its tables on two processes: plan, training, resuming, export, serving.

torchrun --standalone --nproc-per-node 2 examples/sharded_training.py
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from embershard import (
    Client,
    DenseInput,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    Identity,
    KeyedJaggedTensor,
    Schema,
    Server,
    ServerOptions,
    SparseInput,
)
from embershard.export import export_checkpoint
from embershard.planner import EmbeddingShardingPlanner, ParameterConstraints, Topology
from embershard.sharding import (
    DistributedModelParallel,
    RowWiseAdagrad,
    ShardingPlan,
    TrainPipelineSparseDist,
    apply_optimizer_in_backward,
    construct_module_sharding_plan,
    get_default_sharders,
    load_state,
    row_wise,
    save_state,
)

STEPS, BATCH = 25, 64
USERS, ITEMS = 100_000, 1_000
TABLES = [
    EmbeddingBagConfig(
        name="users", num_embeddings=USERS, embedding_dim=16, feature_names=["user"]
    ),
    EmbeddingBagConfig(
        name="items", num_embeddings=ITEMS, embedding_dim=16, feature_names=["seen"]
    ),
]
SCHEMA = Schema(
    dense=[DenseInput("hour")],
    sparse=[
        SparseInput("user", ids=Identity(rows=USERS)),
        SparseInput("seen", ids=Identity(rows=ITEMS)),
    ],
)


class Ranker(nn.Module):
    """A plain PyTorch model. With device meta, no process builds a whole table."""

    def __init__(self, device: str = "meta") -> None:
        super().__init__()
        self.sparse = EmbeddingBagCollection(TABLES, device=device)
        self.over = nn.Linear(1 + 2 * 16, 1)

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> Tensor:
        """Returns probabilities, ``(B,)``."""
        pooled = self.sparse(sparse).values()
        return torch.sigmoid(self.over(torch.cat([dense, pooled], dim=1))).squeeze(1)


def make() -> tuple[nn.Module, Schema]:
    """The factory that the export calls."""
    return Ranker(), SCHEMA


class Batch(NamedTuple):
    dense: Tensor
    sparse: KeyedJaggedTensor
    labels: Tensor


def batches(first: int) -> Iterator[Batch]:
    """Make up this rank's batches from step ``first`` on. Users with an odd number click."""
    for step in range(first, first + STEPS):
        random = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        users = torch.randint(200, (BATCH,), generator=random)
        seen = torch.randint(ITEMS, (3 * BATCH,), generator=random)  # 3 per user
        lengths = torch.tensor([1] * BATCH + [3] * BATCH)
        sparse = KeyedJaggedTensor(["user", "seen"], torch.cat([users, seen]), lengths=lengths)
        yield Batch(torch.rand(BATCH, 1, generator=random), sparse, (users % 2).float())


def ranker() -> Ranker:
    """Make a model whose tables are trained in the backward pass."""
    model = Ranker()
    apply_optimizer_in_backward(RowWiseAdagrad, model.sparse.parameters(), {"lr": 0.1})
    return model


def planned(model: Ranker, file: Path) -> ShardingPlan:
    """Search a plan, which is the same on every rank. Rank 0 prints the report and saves it."""
    planner = EmbeddingShardingPlanner(
        Topology(dist.get_world_size(), ddr_cap=4 << 30),  # 4 GiB for each rank's tables.
        batch_size=BATCH,  # For each rank.
        constraints={"items": ParameterConstraints(pooling_factors=[3.0])},  # Mean ids of a bag.
        pipelined=True,  # train() uses a pipeline.
    )
    plan = planner.collective_plan(model, get_default_sharders())
    if dist.get_rank() == 0:
        print(planner.report.to_text())
        plan.save(file)
    return plan


def by_rows(model: Ranker) -> ShardingPlan:
    """Make a plan by hand that cuts every table by rows over all ranks."""
    cuts = {table.name: row_wise() for table in TABLES}
    return ShardingPlan({"sparse": construct_module_sharding_plan(model.sparse, cuts)})


def sharded(
    model: Ranker, plan: ShardingPlan
) -> tuple[DistributedModelParallel, torch.optim.Optimizer]:
    """Shard the model over all ranks. Also returns the optimizer of its dense part."""
    parallel = DistributedModelParallel(model, plan=plan)
    return parallel, torch.optim.Adagrad(parallel.parameters(), lr=0.1)


def train(
    parallel: DistributedModelParallel, optimizer: torch.optim.Optimizer, data: Iterator[Batch]
) -> list[float]:
    """Train on all batches of this rank. Returns the loss of each."""

    def forward(batch: Batch) -> tuple[Tensor, float]:
        scores = parallel(batch.dense, batch.sparse)
        loss = nn.functional.binary_cross_entropy(scores, batch.labels)
        return loss, loss.item()

    pipeline = TrainPipelineSparseDist(
        parallel, optimizer, torch.device("cpu"), custom_model_fwd=forward
    )
    losses = list[float]()
    while True:
        try:
            losses.append(pipeline.progress(data))
        except StopIteration:
            return losses


def run(folder: Path) -> None:
    """Train, save, and continue with another plan. Every rank calls it."""
    model = ranker()
    parallel, optimizer = sharded(model, planned(model, folder / "plan.json"))
    losses = train(parallel, optimizer, batches(first=0))
    save_state(parallel, folder / "25", optimizer=optimizer)

    model = ranker()  # A new model, like after a restart.
    parallel, optimizer = sharded(model, by_rows(model))
    reported = load_state(parallel, folder / "25", optimizer=optimizer)
    losses += train(parallel, optimizer, batches(first=STEPS))
    save_state(parallel, folder / "50", optimizer=optimizer)
    if dist.get_rank() == 0:
        print(f"state that was averaged or copied: {reported}")
        print(f"loss {losses[0]:.3f}, after the restart {losses[STEPS]:.3f}, {losses[-1]:.3f}")


def serve(folder: Path) -> None:
    """Compare a server's scores with the model's. Only one process calls it."""
    repository = folder / "models"
    export_checkpoint(
        folder / "50", repository / "ranker" / "1", model="sharded_training:make", weights="fp32"
    )
    with (
        Server(repository, options=ServerOptions(port=0)) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        served = client.predict(
            "ranker",
            dense={"hour": [0.5, 0.25]},
            sparse={"user": [[7], [8]], "seen": [[1, 2], []]},
        )["score"]
    model = Ranker(device="cpu")
    load_state(model, folder / "50")
    rows = KeyedJaggedTensor(
        ["user", "seen"], torch.tensor([7, 8, 1, 2]), lengths=torch.tensor([1, 1, 2, 0])
    )
    expected = model(torch.tensor([[0.5], [0.25]]), rows)
    torch.testing.assert_close(torch.from_numpy(served), expected, rtol=1e-5, atol=1e-6)
    print(f"served {served.round(3).tolist()}, as the model says")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory() as own:
        folders = [own]
        dist.broadcast_object_list(folders)  # All ranks use rank 0's folder.
        run(Path(folders[0]))
        dist.destroy_process_group()
        if rank == 0:
            serve(Path(folders[0]))


if __name__ == "__main__":
    main()
