"""``model_tables``: the tables of a model's collections, with what their costs depend on."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from embershard.errors import InputError
from embershard.formatting import names_text
from embershard.kernels import FusedOptimizer
from embershard.modules import EmbeddingBagConfig, EmbeddingConfig
from embershard.planner.cache import missed_shares
from embershard.planner.cost import Table
from embershard.planner.host_memory import uncached_share
from embershard.planner.topology import ParameterConstraints, Topology
from embershard.sharding import EmbeddingComputeKernel, ParameterSharding, ShardingType
from embershard.sharding.shard_memory import id_bytes, weight_bytes
from embershard.sharding.sharders import Sharder, shardable
from embershard.sharding.types import tables_of

DENSE, FUSED = EmbeddingComputeKernel.DENSE, EmbeddingComputeKernel.FUSED
UNCONSTRAINED = ParameterConstraints()
CALLERS = FusedOptimizer(name="sgd")
"""In place of the caller's, which is not priced."""


def model_tables(
    module: nn.Module,
    sharders: Sequence[Sharder],
    topology: Topology,
    constraints: Mapping[str, ParameterConstraints],
    *,
    batch_size: int,
    count_accesses: bool,
    is_replica: Callable[[str, str], bool],
) -> list[Table]:
    """The tables of every collection that one of the sharders shards.

    Args:
        module: the model, on any device.
        sharders: of its collections; they say which optimizer a table has.
        constraints: by table name.
        batch_size: examples of a rank's batch.
        count_accesses: whether accesses of each row are counted in memory.
        is_replica: whether a table, by path and name, lies on every rank, trained by the caller.

    Raises:
        InputError: constraints of a table that is not there, pooling factors that are not one a
            feature, or access counts that are not one a row.
    """
    device = topology.compute_device
    named = list(_with_optimizers(module, sharders, is_replica, device))
    names = {table.name for _, _, table, _ in named}
    for name in constraints:
        if name not in names:
            raise InputError(
                f"constraints: expected a table of the model ({names_text(names)}), got {name!r}"
            )
    examples = batch_size * topology.world_size
    found = list[Table]()
    for path, collection, table, optimizer in named:
        given = constraints.get(table.name, UNCONSTRAINED)
        features = len(table.feature_names)
        found.append(
            Table(
                path=path,
                name=table.name,
                rows=table.num_embeddings,
                dim=table.embedding_dim,
                ids=examples * features * _mean_pooling_factor(table, given),
                bags=float(examples * features),
                # EMA row-wise Adagrad runs the kernels of row-wise Adagrad.
                kernel=topology.machine.kernel(optimizer.name.removeprefix("ema_")),
                is_sequence=not isinstance(table, EmbeddingBagConfig),
                data_type=table.data_type,
                state_columns=optimizer.state_columns,
                count_accesses=count_accesses,
                id_bytes=id_bytes(collection),
                sharding_types=tuple(given.sharding_types) if given.sharding_types else None,
                compute_kernels=tuple(given.compute_kernels) if given.compute_kernels else None,
                min_partition=given.min_partition,
                accesses_below=_accesses_below(table, given.access_counts),
            )
        )
    if not found:
        return found
    # Ranks share the tables: together their caches hold one copy of each row.
    shares = missed_shares(
        [each.row_rates for each in found],
        [weight_bytes(1, each.dim, each.data_type) for each in found],
        [each * topology.world_size for each in topology.machine.caches],
    )
    given_shares = (constraints.get(each.name, UNCONSTRAINED).cached_share for each in found)
    known = (
        of_table if given_share is None else np.full(len(of_table), 1 - given_share)
        for of_table, given_share in zip(shares.T, given_shares, strict=True)
    )
    if topology.host_memory_rate:
        found = [replace(each, uncached=uncached_share(each.row_rates)) for each in found]
    return [
        replace(each, missed=tuple(of_table.tolist()))
        for each, of_table in zip(found, known, strict=True)
    ]


def _with_optimizers(
    module: nn.Module,
    sharders: Sequence[Sharder],
    is_replica: Callable[[str, str], bool],
    device: str,
) -> Iterator[tuple[str, nn.Module, EmbeddingConfig, FusedOptimizer]]:
    """Each table with its collection and optimizer. Those of data_parallel have no optimizer, and
    are priced as with SGD."""
    for path, collection, sharder in shardable(module, sharders):
        tables = tables_of(collection)
        wanted = {
            table.name: ParameterSharding(
                sharding_type=ShardingType.TABLE_WISE.value,
                compute_kernel=(DENSE if is_replica(path, table.name) else FUSED).value,
                sharding_spec=(),
            )
            for table in tables
        }
        where = f"module {path!r}"
        optimizers = sharder.optimizers(collection, wanted, where=where, device=device)
        for table in tables:
            yield path, collection, table, optimizers.get(table.name, CALLERS)


def _mean_pooling_factor(table: EmbeddingConfig, given: ParameterConstraints) -> float:
    factors = list(given.pooling_factors or [1.0])
    features = len(table.feature_names)
    if len(factors) not in (1, features):
        one_each = f" or {features}, one a feature" if features > 1 else ""
        raise InputError(
            f"constraints: table {table.name!r}: pooling_factors: expected 1 number{one_each}, "
            f"got {len(factors)}"
        )
    return sum(factors) / len(factors)


def _accesses_below(table: EmbeddingConfig, counts: Tensor | None) -> NDArray[np.float64] | None:
    if counts is None:
        return None
    if counts.shape != (table.num_embeddings,):
        raise InputError(
            f"constraints: table {table.name!r}: access_counts: expected shape "
            f"({table.num_embeddings},), got {tuple(counts.shape)}"
        )
    below: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(counts.double().numpy())])
    return below if below[-1] else None
