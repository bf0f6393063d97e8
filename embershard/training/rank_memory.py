"""What a run takes of the memory of each rank; see docs/sharding.md, "Memory of a rank"."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from embershard.modules import EmbeddingBagCollection
from embershard.sharding.collection import split_replicated
from embershard.sharding.layout import Layout, build_layout
from embershard.sharding.shard_memory import (
    BATCHES_AHEAD,
    FLOAT_BYTES,
    received_bytes,
    state_bytes,
    weight_bytes,
)
from embershard.sharding.types import tables_of
from embershard.training.config import TrainingConfig
from embershard.training.setup import RunSetup

DENSE_STATES = {"adagrad": 1, "adam": 2, "sgd": 0}
"""Numbers that a dense optimizer keeps for each parameter."""


@dataclass(slots=True)
class RankMemory:
    """Bytes of one rank."""

    tables: float = 0
    """Weights of its shards and replicas."""

    state: float = 0
    """Of the tables' optimizers, with gradients of those that are trained by the dense one, and
    access counts."""

    dense: float = 0
    """Parameters, gradients and optimizer of the rest."""

    step: float = 0
    """Ids and vectors of a batch."""

    @property
    def total(self) -> float:
        return self.tables + self.state + self.dense + self.step


def rank_memory(setup: RunSetup, ids: Mapping[str, int]) -> list[RankMemory]:
    """Of each rank.

    Args:
        setup: of the run.
        ids: of each feature in a batch of all ranks.
    """
    settings, size = setup.config.training, 1 if setup.env is None else setup.env.world_size
    found = [RankMemory() for _ in range(size)]
    trained = (True,) * (1 + DENSE_STATES[settings.dense_optimizer])
    """Of the dense optimizer: a gradient and its state."""
    dense = [each.numel() for each in setup.module.parameters() if not each.is_meta]
    for memory in found:
        memory.dense = sum(dense) * FLOAT_BYTES * (1 + len(trained))
    for path, module in setup.collections.items():
        plan, tables = setup.plan.plan[path], tables_of(module)
        sharder = next(each for each in setup.sharders if each.can_shard(module))
        optimizers = sharder.optimizers(module, plan, where=path, device="cpu")
        for table in tables:
            optimizer = optimizers.get(table.name)
            for shard in plan[table.name].sharding_spec:
                rows, columns = (b - a for a, b in (shard.rows, shard.columns))
                for rank in shard.devices:
                    found[rank].tables += weight_bytes(rows, columns, table.data_type)
                    found[rank].state += state_bytes(
                        rows,
                        columns,
                        optimizer.state_columns if optimizer else trained,
                        count_accesses=settings.count_accesses,
                    )
        is_pooled = isinstance(module, EmbeddingBagCollection)
        sharded, _ = split_replicated(tables, plan)
        layout = build_layout(sharded, plan, optimizers, size, pooled=is_pooled)
        ahead = 0 if setup.env is None else BATCHES_AHEAD
        for at, received, sent in _of_step(layout, settings, ids, ahead, is_pooled=is_pooled):
            found[at].step += received
            for memory in found:
                memory.step += sent / size
    return found


def _of_step(
    layout: Layout,
    settings: TrainingConfig,
    ids: Mapping[str, int],
    ahead: int,
    *,
    is_pooled: bool,
) -> Iterator[tuple[int, float, float]]:
    """Of each part: its rank, bytes of ids and vectors there, and of vectors at all others."""
    for rank, parts in enumerate(layout.parts):
        for part in parts:
            bucket = layout.buckets[layout.streams[rank][part.stream]]
            lookup = layout.lookups[bucket.lookup]
            share = (bucket.rows.end - bucket.rows.first) / lookup.table.num_embeddings
            count = ids[lookup.feature] * share
            bags = settings.batch_size
            vectors = 2 * FLOAT_BYTES * part.width * (bags if is_pooled else count)
            received = received_bytes(
                part.width, count, bags, is_pooled=is_pooled, batches_ahead=ahead
            )
            yield rank, received, vectors
