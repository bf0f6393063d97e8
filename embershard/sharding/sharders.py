"""Sharders: which modules are sharded, into what, and with which optimizers."""

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
        fused_params: of tables without an optimizer of their own (``apply_optimizer_in_backward``,
            or a fused collection's): ``optimizer`` ("rowwise_adagrad", "adagrad", "sgd",
            "ema_rowwise_adagrad"), ``learning_rate``, ``eps`` and more, see
            ``optimizer_of_params``. None: such tables are refused, unless data_parallel.
        qcomm_codecs_registry: as what vectors and gradients travel between ranks, of
            ``get_qcomm_codecs_registry``. None: float32.

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
        """As what vectors and gradients travel between ranks."""
        self._default = None if fused_params is None else optimizer_of_params(fused_params)

    def can_shard(self, module: nn.Module) -> bool:
        """Whether this sharder shards such modules."""
        return isinstance(module, self._kinds)

    def optimizers(
        self,
        module: nn.Module,
        plan: Mapping[str, ParameterSharding],
        *,
        where: str,
        device: str,
    ) -> dict[str, FusedOptimizer]:
        """Of each table whose kernel is not dense.

        Raises:
            InputError: a table has none, or one without a kernel on the device or for a shard; or
                weights of ids are made of other things than positions.
        """
        if isinstance(module, FeatureProcessedEmbeddingBagCollection):
            module.position_weights()
            module = module.split()[1]
        own: FusedOptimizer | None = None
        if isinstance(module, FusedEmbeddingBagCollection | FusedEmbeddingCollection):
            own = module.optimizer
        found, tables = dict[str, FusedOptimizer](), tables_in(module)
        for name, sharding in plan.items():
            at, weight = f"{where}: table {name!r}", tables[name].weight
            if sharding.compute_kernel == EmbeddingComputeKernel.DENSE.value:
                if weight.dtype == torch.float16:
                    raise InputError(
                        f"{at}: data_type: expected FP32 with {sharding.sharding_type} and the "
                        "dense kernel, got FP16"
                    )
                continue
            given = own or optimizer_of(weight) or self._default
            if given is None:
                raise InputError(
                    f"{at}: expected an optimizer in backward (apply_optimizer_in_backward, or "
                    "fused_params of the sharder), got none"
                )
            columns = [each.columns for each in sharding.sharding_spec]
            shapes = [shape_of(each) for each in sharding.sharding_spec]
            try:
                check_optimizer_on(given, device)
                check_dims([dim for _, dim in shapes], given, sharding.compute_kernel)
                check_rows(shapes, device)
            except InputError as error:
                raise InputError(f"{at}: {error}") from error
            halved = [each for each in columns if each != (0, weight.shape[1])]
            if given.has_average and halved:
                raise InputError(
                    f"{at}: expected whole rows with {given.name}, whose average lies in half of "
                    f"each, got columns {list(halved[0])}"
                )
            found[name] = given
        return found

    def shard(
        self,
        module: nn.Module,
        plan: EmbeddingModuleShardingPlan,
        env: ShardingEnv,
        *,
        where: str,
        seed: int,
    ) -> nn.Module:
        """The sharded collection in place of ``module``."""
        assert self.can_shard(module)
        optimizers = self.optimizers(module, plan, where=where, device=env.device.type)
        comms = self.comms[self._exchange]
        sharded: nn.Module = self._sharded(module, plan, env, optimizers, seed=seed, comms=comms)
        return sharded


@final
class EmbeddingBagCollectionSharder(Sharder):
    """Shards ``EmbeddingBagCollection`` and ``FusedEmbeddingBagCollection``; for arguments see
    ``Sharder``."""

    _kinds = (EmbeddingBagCollection, FusedEmbeddingBagCollection)
    _sharded = ShardedEmbeddingBagCollection
    _exchange = POOLED


@final
class EmbeddingCollectionSharder(Sharder):
    """Shards ``EmbeddingCollection`` and ``FusedEmbeddingCollection``; for arguments see
    ``Sharder``."""

    _kinds = (EmbeddingCollection, FusedEmbeddingCollection)
    _sharded = ShardedEmbeddingCollection
    _exchange = SEQUENCE


@final
class FeatureProcessedEmbeddingBagCollectionSharder(Sharder):
    """Shards ``FeatureProcessedEmbeddingBagCollection``.

    Args:
        ebc_sharder: whose ``fused_params`` and, unless given, ``qcomm_codecs_registry`` to use.
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
    """The modules that a sharder shards, with their paths; not those within one of them."""
    outer = list[str]()
    for path, module in model.named_modules():
        if any(is_within(path, each) for each in outer):
            continue
        sharder = next((each for each in sharders if each.can_shard(module)), None)
        if sharder is not None:
            outer.append(path)
            yield path, module, sharder


def is_within(path: str, outer: str) -> bool:
    """Whether a module lies inside another."""
    return path.startswith(f"{outer}." if outer else "")


def tables_in(module: Any) -> TableDict:
    """The tables of a collection."""
    tables: TableDict = getattr(module, module.PREFIX)
    return tables


def get_default_sharders() -> list[Sharder]:
    """One of each kind, without ``fused_params``."""
    return [
        EmbeddingBagCollectionSharder(),
        EmbeddingCollectionSharder(),
        FeatureProcessedEmbeddingBagCollectionSharder(),
    ]
