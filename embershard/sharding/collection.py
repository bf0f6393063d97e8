from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from embershard.jagged import KeyedJaggedTensor
from embershard.kernels import FusedOptimizer
from embershard.modules import EmbeddingConfig
from embershard.modules.tables import Table, TableDict, embedding_names
from embershard.optim import FusedKeyedOptimizer
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.held_table import HeldTable, weight_key
from embershard.sharding.incoming import Incoming, Receiver
from embershard.sharding.input_dist import InputDist
from embershard.sharding.layout import build_layout
from embershard.sharding.outgoing import Sorter
from embershard.sharding.tables import AccessCounts, LocalShard, ShardedTables, fill_shard
from embershard.sharding.types import ParameterSharding, ShardingType, whole_shard
from embershard.sharding.vector_exchange import VectorExchange, distribute

AnyConfig = TypeVar("AnyConfig", bound=EmbeddingConfig)


class ShardedCollection(nn.Module):
    """Sharded tables of one collection on one rank, and the exchange of its input."""

    PREFIX: ClassVar[str]
    """Attribute that holds the tables, as in the collection that is sharded."""

    def __init__(
        self,
        module: nn.Module,
        configs: Sequence[EmbeddingConfig],
        plan: Mapping[str, ParameterSharding],
        env: ShardingEnv,
        optimizers: Mapping[str, FusedOptimizer],
        *,
        build: Callable[[list[Any]], nn.Module],
        seed: int,
        pooled: bool,
        is_weighted: bool = False,
        max_lengths: Mapping[str, int] | None = None,
    ) -> None:
        """Shard a collection ``module`` with the initial weights; see ``fill_shard``. ``build``
        makes an unsharded collection of some of the tables. ``pooled`` is False if every id keeps
        its vector. ``max_lengths`` has the most ids of a bag by feature, to send positions in place
        of weights."""
        super().__init__()
        self._names, weights = embedding_names(configs), getattr(module, self.PREFIX)
        self.plan = plan
        sharded, self.replicated = split_replicated(configs, plan)
        self._env, self._sharded, self._optimizers = env, sharded, optimizers
        self.register_state_dict_post_hook(_name_shards)  # type: ignore[no-untyped-call]
        self.layout = build_layout(sharded, plan, optimizers, env.world_size, pooled=pooled)
        sorter = Sorter(
            self.layout,
            is_weighted=is_weighted,
            replicated=self.replicated,
            device=env.device,
            pooled=pooled,
            max_lengths=max_lengths,
        )
        self.receiver = Receiver(self.layout, sorter, env)
        self.tables = ShardedTables(self.layout, env, pooled=pooled)
        for local in self.tables.shards:
            table = next(config for config in sharded if config.name == local.shard.table)
            fill_shard(table, local.shard, weights[table.name].weight, seed, into=local.weight)
        self.started: tuple[object, Incoming] | None = None
        """Input of the next call, with the result of its finished exchange."""
        self.on_gradient: Callable[[Tensor], None] | None = None
        """Called on every rank in backward, with the gradient of the result of ``distribute``."""
        self._replica_accesses: AccessCounts | None = None
        # A tuple, so that torch does not register its parameters a second time.
        self._replicas: tuple[Any, ...] = tuple([build(self.replicated)] if self.replicated else [])
        replicas = getattr(self._replicas[0], self.PREFIX) if self.replicated else TableDict({})
        fill_replicas(self.replicated, weights, seed, into=replicas)
        setattr(self, self.PREFIX, self._trained(replicas))

    def embedding_names(self) -> list[str]:
        """Keys of the outputs: the feature, or ``feature@table`` if several tables share it."""
        return list(self._names)

    def local_shards(self) -> list[LocalShard]:
        """This rank's shards of tables that are not data_parallel. Cached weights may be read and
        written until the next lookup."""
        self.tables.flush()
        return list(self.tables.shards)

    def set_learning_rate(self, learning_rate: float) -> None:
        self.tables.set_learning_rate(learning_rate)

    def distribute(self, vectors: Tensor, exchange: VectorExchange, *batch: Any) -> Tensor:
        output = distribute(vectors, exchange, *batch)
        if self.on_gradient is not None and output.requires_grad:
            output.register_hook(self.on_gradient)  # type: ignore[no-untyped-call]
        return output

    def incoming(self, features: KeyedJaggedTensor) -> Incoming:
        """Ids for this rank to look up. Exchanges ``features`` unless their exchange was started
        before. Raises InputError if some rank's batch is bad: the same message on every rank."""
        started, self.started = self.started, None
        if started is not None and started[0] is features:
            incoming = started[1]
        else:
            (incoming,) = InputDist(self._env, [(self.receiver, features)]).finish()
        # The exchange has checked the features.
        if self._replica_accesses is not None and torch.is_grad_enabled():
            self._replica_accesses.add_features(features, self.replicated)
        return incoming

    def count_accesses(self) -> None:
        self.tables.count_accesses()
        lookups = [at for at, table in enumerate(self.replicated) for _ in table.feature_names]
        rows = [table.num_embeddings for table in self.replicated]
        self._replica_accesses = AccessCounts(rows, lookups, self._env.device) if rows else None

    def replica_accesses(self) -> dict[str, Tensor]:
        """data_parallel table -> int64 ``(rows,)``: lookups by this rank. Empty if not counted."""
        if self._replica_accesses is None:
            return {}
        names = [table.name for table in self.replicated]
        return dict(zip(names, self._replica_accesses.tables, strict=True))

    @property
    def fused_optimizer(self) -> FusedKeyedOptimizer:
        """Optimizer of this rank's shards; see ``DistributedModelParallel``. Further shards of one
        table are named ``weight.1`` and so on."""
        params, state = dict[str, Tensor](), dict[Tensor, dict[str, Tensor]]()
        for local in self.tables.shards:
            if local.parameter is not None:
                continue
            table = local.shard.table
            name = f"{self.PREFIX}.{table}.weight"
            further = sum(other.split(".weight")[0] == f"{self.PREFIX}.{table}" for other in params)
            params[f"{name}.{further}" if further else name] = local.weight
            if local.state:
                state[local.weight] = {
                    f"{table}.{key}": tensor for key, tensor in local.state.items()
                }
        groups = self.tables.param_groups
        apply = self.tables.apply_learning_rates
        return FusedKeyedOptimizer(params, state, groups, apply, self._fused_state)

    def _trained(self, replicas: TableDict) -> TableDict:
        """Parameters of the caller's optimizer, by table: data_parallel tables, and this rank's
        shards of the dense kernel. Further shards of one table are named ``weight_1`` and so on."""
        tables = {name: replicas[name] for name in replicas}
        for local in self.tables.shards:
            if local.parameter is None:
                continue
            if local.shard.table not in tables:
                tables[local.shard.table] = Table(local.parameter)
            else:
                further = tables[local.shard.table]
                further.register_parameter(f"weight_{len(further._parameters)}", local.parameter)
        return TableDict(tables)

    def held_tables(self, path: str = "") -> list[HeldTable]:
        """Tables that are not data_parallel, with the keys of a collection at ``path``."""
        local = defaultdict[str, list[LocalShard]](list)
        for local_shard in self.local_shards():
            local[local_shard.shard.table].append(local_shard)
        return [
            HeldTable(
                name=table.name,
                weight_key=weight_key(path, self.PREFIX, table.name),
                size=(table.num_embeddings, table.embedding_dim),
                dtype=table.data_type.dtype,
                shards=self.plan[table.name].sharding_spec,
                local=tuple(local[table.name]),
                optimizer=self._optimizers.get(table.name),
                env=self._env,
            )
            for table in self._sharded
        ]

    def _fused_state(self) -> dict[str, dict[str, Tensor]]:
        """Weight's key -> state by TorchRec's names, such as ``<table>.momentum1``."""
        states = dict[str, dict[str, Tensor]]()
        for table in self.held_tables():
            if state := table.state():
                named = {f"{table.name}.{name}": tensor for name, tensor in state.items()}
                states[table.weight_key] = named
        return states

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, *lists: list[str]
    ) -> None:
        missing, _, faults = lists
        for table in self.held_tables(prefix.removesuffix(".")):
            if table.weight_key not in state_dict:
                missing.append(table.weight_key)
            elif fault := table.load_weight(state_dict.pop(table.weight_key)):
                faults.append(f"{table.weight_key}: {fault}.")
            for key, parameter in self._dense(table).items():
                # Loaded above; submodules must not report it as missing.
                state_dict[key] = parameter
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, *lists)

    @staticmethod
    def _dense(table: HeldTable) -> dict[str, Tensor]:
        """Shards of the dense kernel that submodules hold, by key."""
        parameters = [local.parameter for local in table.local if local.parameter is not None]
        return {
            f"{table.weight_key}_{place}" if place else table.weight_key: parameter.detach()
            for place, parameter in enumerate(parameters)
        }


def _name_shards(
    collection: ShardedCollection, state_dict: dict[str, Tensor], prefix: str, _: Any
) -> None:
    """Replace local shards in a state dict by sharded tables, as in TorchRec."""
    for table in collection.held_tables(prefix.removesuffix(".")):
        for key in collection._dense(table):
            del state_dict[key]
        state_dict[table.weight_key] = table.weight()


def split_replicated(
    tables: Sequence[AnyConfig], plan: Mapping[str, ParameterSharding]
) -> tuple[list[AnyConfig], list[AnyConfig]]:
    kind = ShardingType.DATA_PARALLEL.value
    sharded = [table for table in tables if plan[table.name].sharding_type != kind]
    return sharded, [table for table in tables if plan[table.name].sharding_type == kind]


def fill_replicas(
    tables: Sequence[EmbeddingConfig], weights: TableDict, seed: int, *, into: TableDict
) -> None:
    for table in tables:
        weight = weights[table.name].weight
        fill_shard(table, whole_shard(table), weight, seed, into=into[table.name].weight)
