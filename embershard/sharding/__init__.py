"""Trains tables that are sharded over the ranks of torch.distributed. Names follow TorchRec."""

from embershard.package.rectangles import Shard
from embershard.sharding.checkpoint import (
    AsyncStateWriter,
    load_state,
    save_state,
    state_tensors,
)
from embershard.sharding.embedding import ShardedEmbeddingCollection
from embershard.sharding.embeddingbag import (
    ShardedEmbeddingBagCollection,
    ShardedFeatureProcessedEmbeddingBagCollection,
)
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.model_parallel import DistributedModelParallel
from embershard.sharding.optimizers import (
    LAMB,
    PartialRowWiseAdam,
    RowWiseAdagrad,
    apply_optimizer_in_backward,
)
from embershard.sharding.pipelines import (
    EvalPipelineSparseDist,
    TrainPipelineBase,
    TrainPipelineSparseDist,
)
from embershard.sharding.plan import (
    ParameterShardingGenerator,
    column_wise,
    construct_module_sharding_plan,
    data_parallel,
    grid_shard,
    row_wise,
    table_column_wise,
    table_row_wise,
    table_wise,
)
from embershard.sharding.sharders import (
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    FeatureProcessedEmbeddingBagCollectionSharder,
    get_default_sharders,
)
from embershard.sharding.types import (
    EmbeddingComputeKernel,
    EmbeddingModuleShardingPlan,
    ParameterSharding,
    ShardingPlan,
    ShardingType,
)
from embershard.sharding.vector_exchange import (
    CommType,
    QCommsConfig,
    get_qcomm_codecs_registry,
)

__all__ = [
    "LAMB",
    "AsyncStateWriter",
    "CommType",
    "DistributedModelParallel",
    "EmbeddingBagCollectionSharder",
    "EmbeddingCollectionSharder",
    "EmbeddingComputeKernel",
    "EmbeddingModuleShardingPlan",
    "EvalPipelineSparseDist",
    "FeatureProcessedEmbeddingBagCollectionSharder",
    "ParameterSharding",
    "ParameterShardingGenerator",
    "PartialRowWiseAdam",
    "QCommsConfig",
    "RowWiseAdagrad",
    "Shard",
    "ShardedEmbeddingBagCollection",
    "ShardedEmbeddingCollection",
    "ShardedFeatureProcessedEmbeddingBagCollection",
    "ShardingEnv",
    "ShardingPlan",
    "ShardingType",
    "TrainPipelineBase",
    "TrainPipelineSparseDist",
    "apply_optimizer_in_backward",
    "column_wise",
    "construct_module_sharding_plan",
    "data_parallel",
    "get_default_sharders",
    "get_qcomm_codecs_registry",
    "grid_shard",
    "load_state",
    "row_wise",
    "save_state",
    "state_tensors",
    "table_column_wise",
    "table_row_wise",
    "table_wise",
]
