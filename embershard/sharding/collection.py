"""``CollectionShards``: what a sharded collection holds on its rank, whatever it makes of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules import EmbeddingConfig
from embershard.modules.tables import TableDict
from embershard.package.rectangles import Shard
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.input_dist import Incoming, InputDist, Receiver
from embershard.sharding.layout import build_layout
from embershard.sharding.outgoing import Sorter
from embershard.sharding.tables import ShardedTables, fill_shard
from embershard.sharding.types import ParameterSharding, ShardingType

__all__ = ["CollectionShards", "fill_replicas", "split_replicated"]


class CollectionShards:
    """The sharded tables of one collection on one rank, and the exchange of its input.

    Args:
        tables: of the collection, in order.
        plan: of each table.
        env: the ranks.
        optimizers: of each table that is not data_parallel.
        weights: initial weights of whole tables; see ``fill_shard``.
        seed: of new weights.
        is_weighted: whether the features' weights are sent.
        pooled: whether bags are summed, or every id keeps its vector.
    """

    def __init__(
        self,
        tables: Sequence[EmbeddingConfig],
        plan: Mapping[str, ParameterSharding],
        env: ShardingEnv,
        optimizers: Mapping[str, FusedOptimizer],
        weights: TableDict,
        *,
        seed: int,
        is_weighted: bool,
        pooled: bool,
    ) -> None:
        sharded, replicated = split_replicated(tables, plan)
        self._env = env
        self.layout = build_layout(sharded, plan, optimizers, env.world_size, pooled=pooled)
        sorter = Sorter(self.layout, is_weighted=is_weighted, replicated=replicated, pooled=pooled)
        self.receiver = Receiver(self.layout, sorter, env.rank)
        self.tables = ShardedTables(self.layout, env.rank, pooled=pooled)
        for local in self.tables.shards:
            table = next(each for each in sharded if each.name == local.shard.table)
            fill_shard(table, local.shard, weights[table.name].weight, seed, into=local.weight)
        self.started: tuple[object, Incoming] | None = None
        """An input whose exchange is done; for the next call."""

    def incoming(self, features: KeyedJaggedTensor) -> Incoming:
        """What this rank looks up, after an exchange if none was done for ``features``.

        Raises:
            InputError: the batch of some rank cannot be looked up: the same message on every rank.
        """
        started, self.started = self.started, None
        if started is not None and started[0] is features:
            return started[1]
        return InputDist(self._env, [(self.receiver, features)]).finish()[0]

    def check_state_dict(self) -> None:
        """Refuse a state dict that would lack the sharded tables.

        Raises:
            InputError: there are some.
        """
        if self.layout.lookups:
            raise InputError(
                "state_dict: expected data_parallel tables only, got sharded ones; "
                "local_shards() holds those of this rank"
            )


def split_replicated(
    tables: Sequence[EmbeddingConfig], plan: Mapping[str, ParameterSharding]
) -> tuple[list[EmbeddingConfig], list[EmbeddingConfig]]:
    """The tables that are sharded, and those that every rank holds (data_parallel)."""
    kind = ShardingType.DATA_PARALLEL.value
    sharded = [table for table in tables if plan[table.name].sharding_type != kind]
    return sharded, [table for table in tables if plan[table.name].sharding_type == kind]


def fill_replicas(
    tables: Sequence[EmbeddingConfig], weights: TableDict, seed: int, *, into: TableDict
) -> None:
    """Initialize whole tables; see ``fill_shard``."""
    for table in tables:
        whole = Shard(
            table=table.name,
            rows=(0, table.num_embeddings),
            columns=(0, table.embedding_dim),
            devices=(0,),
        )
        fill_shard(table, whole, weights[table.name].weight, seed, into=into[table.name].weight)
