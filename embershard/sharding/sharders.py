"""Sharders replace collections by sharded ones and choose the optimizers of their tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, final

import torch
from torch import nn

from embershard.errors import InputError
from embershard.kernels import FusedOptimizer, check_dims, check_optimizer_on, check_rows
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
    FeatureProcessedEmbeddingBagCollection,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
)
from embershard.modules.tables import TableDict
from embershard.sharding.embedding import ShardedEmbeddingCollection
from embershard.sharding.embeddingbag import (
    ShardedEmbeddingBagCollection,
    ShardedFeatureProcessedEmbeddingBagCollection,
)
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.optimizers import optimizer_of, optimizer_of_params
from embershard.sharding.types import (
    EmbeddingComputeKernel,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    shape_of,
)
from embershard.sharding.vector_exchange import (
    POOLED,
    SEQUENCE,
    QCommsConfig,
    registered_comms,
)


class Sharder:
    """Shards collections of one kind.

    Args:
        fused_params: optimizer of tables without one from ``apply_optimizer_in_backward`` or a
            fused collection: ``optimizer`` ("rowwise_adagrad", "adagrad", "sgd",
            "ema_rowwise_adagrad"), ``learning_rate``, ``eps`` and more, see
            ``optimizer_of_params``. None: such tables are refused, unless data_parallel.
        qcomm_codecs_registry: result of ``get_qcomm_codecs_registry``: data types of vectors and
            gradients between ranks. None: float32.

    Raises:
        InputError: a setting that cannot be used.
    """

    _kinds: ClassVar[tuple[type[nn.Module], ...]]
    _sharded: ClassVar[Any]
    _exchange: ClassVar[str]

    def __init__(
        self,
        fused_params: Mapping[str, Any] | None = None,
        qcomm_codecs_registry: Mapping[str, QCommsConfig] | None = None,
    ) -> None:
        self.comms = registered_comms(qcomm_codecs_registry)
        self._default = None if fused_params is None else optimizer_of_params(fused_params)

    def can_shard(self, module: nn.Module) -> bool:
        return isinstance(module, self._kinds)

    def optimizers(
        self,
        module: nn.Module,
        plan: Mapping[str, ParameterSharding],
        *,
        where: str,
        device: str,
    ) -> dict[str, FusedOptimizer]:
        """Optimizer of each table whose kernel is not dense. Raises InputError for a table without
        an optimizer, or with one that has no kernel on the device or for a shard; or for weights of
        ids that do not depend on positions only."""
        if isinstance(module, FeatureProcessedEmbeddingBagCollection):
            module.position_weights()
            module = module.split()[1]
        own: FusedOptimizer | None = None
        if isinstance(module, FusedEmbeddingBagCollection | FusedEmbeddingCollection):
            own = module.optimizer
        optimizers, tables = dict[str, FusedOptimizer](), tables_in(module)
        for name, sharding in plan.items():
            at, weight = f"{where}: table {name!r}", tables[name].weight
            if sharding.compute_kernel == EmbeddingComputeKernel.DENSE.value:
                if weight.dtype == torch.float16:
                    raise InputError(
                        f"{at}: data_type: expected FP32 with {sharding.sharding_type} and the "
                        "dense kernel, got FP16"
                    )
                continue
            optimizer = own or optimizer_of(weight) or self._default
            if optimizer is None:
                raise InputError(
                    f"{at}: expected an optimizer in backward (apply_optimizer_in_backward, or "
                    "fused_params of the sharder), got none"
                )
            columns = [shard.columns for shard in sharding.sharding_spec]
            shapes = [shape_of(shard) for shard in sharding.sharding_spec]
            try:
                check_optimizer_on(optimizer, device)
                check_dims([dim for _, dim in shapes], optimizer, sharding.compute_kernel)
                check_rows(shapes, device)
            except InputError as error:
                raise InputError(f"{at}: {error}") from error
            halved = [span for span in columns if span != (0, weight.shape[1])]
            if optimizer.has_average and halved:
                raise InputError(
                    f"{at}: expected whole rows with {optimizer.name}, which averages half of each "
                    f"row, got columns {list(halved[0])}"
                )
            optimizers[name] = optimizer
        return optimizers

    def shard(
        self,
        module: nn.Module,
        plan: EmbeddingModuleShardingPlan,
        env: ShardingEnv,
        *,
        where: str,
        seed: int,
    ) -> nn.Module:
        assert self.can_shard(module)
        optimizers = self.optimizers(module, plan, where=where, device=env.device.type)
        comms = self.comms[self._exchange]
        sharded: nn.Module = self._sharded(module, plan, env, optimizers, seed=seed, comms=comms)
        return sharded


@final
class EmbeddingBagCollectionSharder(Sharder):
    """Shards ``EmbeddingBagCollection`` and ``FusedEmbeddingBagCollection``; see ``Sharder``."""

    _kinds = (EmbeddingBagCollection, FusedEmbeddingBagCollection)
    _sharded = ShardedEmbeddingBagCollection
    _exchange = POOLED


@final
class EmbeddingCollectionSharder(Sharder):
    """Shards ``EmbeddingCollection`` and ``FusedEmbeddingCollection``; see ``Sharder``."""

    _kinds = (EmbeddingCollection, FusedEmbeddingCollection)
    _sharded = ShardedEmbeddingCollection
    _exchange = SEQUENCE


@final
class FeatureProcessedEmbeddingBagCollectionSharder(Sharder):
    """Shards ``FeatureProcessedEmbeddingBagCollection``.

    Args:
        ebc_sharder: sharder with the ``fused_params`` and the default ``qcomm_codecs_registry``.
        qcomm_codecs_registry: see ``Sharder``.
    """

    _kinds = (FeatureProcessedEmbeddingBagCollection,)
    _sharded = ShardedFeatureProcessedEmbeddingBagCollection
    _exchange = POOLED

    def __init__(
        self,
        ebc_sharder: EmbeddingBagCollectionSharder | None = None,
        qcomm_codecs_registry: Mapping[str, QCommsConfig] | None = None,
    ) -> None:
        ebc_sharder = ebc_sharder or EmbeddingBagCollectionSharder()
        super().__init__(None, qcomm_codecs_registry or ebc_sharder.comms)
        self._default = ebc_sharder._default


def shardable(
    model: nn.Module, sharders: Sequence[Sharder]
) -> Iterator[tuple[str, nn.Module, Sharder]]:
    """Modules that a sharder can shard, with their paths, except those inside another one."""
    outer = list[str]()
    for path, module in model.named_modules():
        if any(is_within(path, parent) for parent in outer):
            continue
        sharder = next((candidate for candidate in sharders if candidate.can_shard(module)), None)
        if sharder is not None:
            outer.append(path)
            yield path, module, sharder


def is_within(path: str, outer: str) -> bool:
    return path.startswith(f"{outer}." if outer else "")


def tables_in(module: Any) -> TableDict:
    tables: TableDict = getattr(module, module.PREFIX)
    return tables


def get_default_sharders() -> list[Sharder]:
    """One sharder of each kind, without ``fused_params``."""
    return [
        EmbeddingBagCollectionSharder(),
        EmbeddingCollectionSharder(),
        FeatureProcessedEmbeddingBagCollectionSharder(),
    ]
