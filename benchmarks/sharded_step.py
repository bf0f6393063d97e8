"""A training step on several ranks, for embershard and TorchRec, in timed blocks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.child import serve_blocks

WORKER: Final = "benchmarks.workers.sharded_training"
PEER_WORKER: Final = "benchmarks.peers.torchrec_sharded"

ROWS, DIM, EXAMPLES, DENSE = 100_000, 64, 512, 13
DENSE_LAYERS: Final = [512, 256, DIM]
OVER_LAYERS: Final = [512, 512, 256, 1]
SMALL_ROWS: Final = 1000
BATCHES: Final = 4
RATE: Final = 0.01
FIRST_STEPS: Final = 3
"""Steps before the blocks, because the first steps allocate memory."""

PARTS: Final = {
    "step": "a whole DLRM",
    "pipelined": "a whole DLRM, while the inputs of the next steps are exchanged",
    "sparse": "only the collection, forward and backward",
    "counted": "sparse, with access counts",
    "fp16": "sparse, with vectors and gradients in fp16 between ranks",
    "bf16": "sparse, with vectors and gradients in bf16 between ranks",
    "int8": "sparse, with vectors and gradients in int8 between ranks",
    "fused": "only small tables, with Adagrad in their backward pass",
    "dense": "only small tables, with torch's Adagrad",
}


class Case(NamedTuple):
    """The model and sharding that a side trains, from its command line."""

    part: str
    """One of ``PARTS``."""

    plan: str

    tables: int

    @staticmethod
    def from_arguments() -> Case:
        part, plan, tables = sys.argv[1:]
        assert part in PARTS
        return Case(part, plan, int(tables))

    @property
    def is_whole(self) -> bool:
        return self.part in ("step", "pipelined")

    @property
    def rows(self) -> int:
        return SMALL_ROWS if self.part in ("fused", "dense") else ROWS

    @property
    def names(self) -> list[str]:
        return [f"f{at}" for at in range(self.tables)]

    @property
    def cuts(self) -> dict[str, tuple[str, int]]:
        """Plan and number of each table, by name."""
        return {f"t{at}": (self.plan, at) for at in range(self.tables)}

    def batches(self, rank: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Dense values, ids and lengths of a rank's batches, with one id per bag."""
        generator = torch.Generator().manual_seed(rank)
        total = self.tables * EXAMPLES
        return [
            (
                torch.randn(EXAMPLES, DENSE, generator=generator),
                torch.randint(self.rows, (total,), generator=generator),
                torch.ones(total, dtype=torch.int32),
            )
            for _ in range(BATCHES)
        ]


def start_rank() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=2))


class Pooled(nn.Module):
    """A model with only the sparse part, the pooled vectors of a collection."""

    def __init__(self, collection: nn.Module) -> None:
        super().__init__()
        self.collection = collection

    def forward(self, features: Any) -> Tensor:
        vectors: Tensor = self.collection(features).values()
        return vectors


class Library(NamedTuple):
    """A library's modules. TorchRec and embershard use the same names."""

    modules: Any

    dlrm: Any

    plans: Any

    distributed: Any

    def build(self, case: Case) -> tuple[nn.Module, nn.Module]:
        """Make the model of a case on device meta, and its collection."""
        configs = [
            self.modules.EmbeddingBagConfig(
                name=f"t{at}", num_embeddings=case.rows, embedding_dim=DIM, feature_names=[name]
            )
            for at, name in enumerate(case.names)
        ]
        tables = self.modules.EmbeddingBagCollection(tables=configs, device=torch.device("meta"))
        if case.is_whole:
            return self.dlrm(tables, DENSE, DENSE_LAYERS, OVER_LAYERS), tables
        return Pooled(tables), tables

    def shard(
        self,
        model: nn.Module,
        tables: nn.Module,
        cuts: Mapping[str, tuple[str, int]],
        sharder: Any,
        *,
        kernel: str | None = None,
        **options: object,
    ) -> Any:
        """Shard a model over all ranks.

        ``tables`` is the collection in the model. ``cuts``: table name -> sharding type, and the
        table's position. ``kernel``: compute kernel of tables that are not split.
        """
        ranks = dist.get_world_size()
        plan = self.plans.construct_module_sharding_plan(
            tables,
            {name: self._cut(cut, table, ranks, kernel) for name, (cut, table) in cuts.items()},
            sharder=sharder,
            local_size=ranks,
            world_size=ranks,
            device_type="cpu",
        )
        path = next(name for name, module in model.named_modules() if module is tables)
        return self.distributed.DistributedModelParallel(
            model,
            device=torch.device("cpu"),
            env=self.distributed.ShardingEnv.from_process_group(dist.group.WORLD),
            plan=self.distributed.ShardingPlan({path: plan}),
            sharders=[sharder],
            **options,
        )

    def jagged(self, keys: list[str], ids: Tensor, lengths: Tensor) -> Any:
        return self.modules.KeyedJaggedTensor(keys=keys, values=ids, lengths=lengths)

    def _cut(self, plan: str, table: int, ranks: int, kernel: str | None) -> Any:
        cuts = {
            "table_wise": self.plans.table_wise(rank=table % ranks, compute_kernel=kernel),
            "row_wise": self.plans.row_wise(),
            "column_wise": self.plans.column_wise(ranks=list(range(ranks))),
        }
        return cuts[plan]


def serve_steps(
    case: Case,
    model: nn.Module,
    library: Library,
    *,
    step: Callable[[Tensor, object], object] | None = None,
    counted: Callable[[], float] = float,
) -> None:
    """Answer blocks of steps. Rank 0 reads the lines of `benchmarks.child` and sends the number of
    steps to the others. Figures are for all ranks together.

    Args:
        model: maps features to vectors, or if ``case.is_whole`` dense values and features to logits
        step: runs a step with dense values and features. None: `sgd_step`.
        counted: returns the bytes of vectors that this rank has sent.
    """
    batches = [
        (dense, library.jagged(case.names, ids, lengths))
        for dense, ids, lengths in case.batches(dist.get_rank())
    ]
    step = step or (sgd_step(model) if case.is_whole else _sparse_step(case, model))

    def timed(steps: int) -> dict[str, float]:
        before = counted()
        figures = _timed(lambda number: step(*batches[number % len(batches)]), steps)
        return {**figures, "vector_bytes_a_step": (counted() - before) / steps}

    timed(FIRST_STEPS)
    last = timed(FIRST_STEPS)
    if dist.get_rank():
        while steps := broadcast_steps(0):
            timed(steps)
        return

    def block(seconds: float) -> Mapping[str, float]:
        nonlocal last
        last = timed(broadcast_steps(max(1, round(seconds / last["seconds_a_step"]))))
        return last

    serve_blocks(block)
    broadcast_steps(0)


def sgd_step(model: nn.Module) -> Callable[[Tensor, object], None]:
    """Make a step of SGD on the parameters that are not trained in backward.

    ``model`` maps dense values, float32 ``(examples, dense)``, and a KeyedJaggedTensor to logits,
    ``(examples, 1)``.
    """
    trained = [
        parameter
        for parameter in model.parameters()
        if parameter.requires_grad and not hasattr(parameter, "_in_backward_optimizers")
    ]
    optimizer = torch.optim.SGD(trained, lr=RATE)

    def step(dense: Tensor, features: object) -> None:
        optimizer.zero_grad()
        logits = model(dense, features).squeeze(1)
        labels = (torch.arange(len(dense)) % 2).float()
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _sparse_step(case: Case, model: nn.Module) -> Callable[[Tensor, object], None]:
    gradient = torch.full((EXAMPLES, case.tables * DIM), 1e-3)

    def step(_: Tensor, features: object) -> None:
        model(features).backward(gradient)

    return step


def broadcast_steps(steps: int) -> int:
    """Send rank 0's number of steps to all ranks, and return it. 0 ends the blocks."""
    count = torch.tensor([steps])
    dist.broadcast(count, src=0)
    return int(count)


def _timed(step: Callable[[int], object], steps: int) -> dict[str, float]:
    dist.barrier()
    started, used = time.perf_counter(), time.process_time()
    for number in range(steps):
        step(number)
    cpu = torch.tensor([time.process_time() - used], dtype=torch.float64)
    dist.all_reduce(cpu)  # Also waits for the steps of all ranks.
    passed, ranks = time.perf_counter() - started, dist.get_world_size()
    examples = EXAMPLES * ranks * steps
    return {
        "examples_per_second": examples / passed,
        "examples_per_cpu_second": examples / float(cpu),
        "seconds_a_step": passed / steps,
    }
