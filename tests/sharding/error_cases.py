"""Cases with bad input that worker processes run; see workers.py."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from embershard.errors import InputError
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    QCommsConfig,
    ShardingEnv,
    ShardingPlan,
    construct_module_sharding_plan,
    get_qcomm_codecs_registry,
    table_wise,
)
from tests.sharding.cases import collection_of, features_of, model_parallel, shard


def bad_batch(env, case, plan, batch):
    """Message on this rank if rank 1 gets a bad batch. A step works afterwards. ``batch`` None: no
    rank gets a bad batch."""
    module = shard(env, collection_of(case), plan)
    good = features_of(case, case.batches[0][env.rank])
    message = ""
    try:
        module(batch if env.rank == 1 and batch is not None else good)
    except InputError as error:
        message = str(error)
    module(good).values().sum().backward()
    return message


def bad_plan(env, case, plans):
    """Message on this rank if each rank builds with its own plan."""
    try:
        shard(env, collection_of(case), plans[env.rank])
    except InputError as error:
        return str(error)
    return ""


def bad_sharder(env, case, plan, settings):
    """Message on this rank if each rank builds with its own fused_params or comms."""
    setting, module = settings[env.rank], collection_of(case)
    try:
        if isinstance(setting, QCommsConfig):
            shard(env, module, plan, comms=get_qcomm_codecs_registry(setting))
        else:
            sharders = [EmbeddingBagCollectionSharder(fused_params=setting)]
            model = nn.ModuleDict({"sparse": module})
            DistributedModelParallel(
                model, env, plan=ShardingPlan({"sparse": plan}), sharders=sharders
            )
    except InputError as error:
        return str(error)
    return ""


def too_many_rows(env):
    """Message on this rank if a table on rank 1 has 2^32 rows."""
    table = EmbeddingBagConfig(
        name="t", num_embeddings=1 << 32, embedding_dim=4, feature_names=["f"]
    )
    module = EmbeddingBagCollection([table], device="meta")
    plan = construct_module_sharding_plan(module, {"t": table_wise(rank=1)}, world_size=2)
    with pytest.raises(InputError) as raised:
        shard(env, module, plan)
    return str(raised.value)


def build_with(env, case, plans):
    """Message on this rank if each rank builds a model with its own ``plan``."""
    model = nn.ModuleDict({"sparse": collection_of(case)})
    try:
        DistributedModelParallel(model, env, plan=plans[env.rank])
    except InputError as error:
        return str(error)
    return ""


def bad_device(env, device, is_of_env):
    """Message on this rank if rank 1 builds for ``device`` and torch sees no GPU."""
    chosen = device if env.rank else "cpu"
    if is_of_env:
        env, chosen = replace(env, device=chosen), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.cuda.is_available", lambda: False)
        with pytest.raises(InputError) as raised:
            DistributedModelParallel(nn.Linear(2, 1), env, chosen, ShardingPlan({}))
    return str(raised.value)


def bad_local_size(env, sizes):
    """Message on this rank if each rank has its own local size."""
    try:
        ShardingEnv.from_process_group(env.process_group, local_size=sizes[env.rank])
    except InputError as error:
        return str(error)
    return ""


def bad_model(env, case, plan):
    """Message on this rank if a buffer of the model differs in size by rank."""
    model = nn.ModuleDict({"sparse": collection_of(case)})
    model.register_buffer("norm", torch.zeros(2 + env.rank))
    sharders = [EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd"})]
    try:
        DistributedModelParallel(model, env, plan=ShardingPlan({"sparse": plan}), sharders=sharders)
    except InputError as error:
        return str(error)
    return ""


def bad_batch_in_step(env, case, plans, batch, bad_step):
    """Message on this rank if rank 1 gets a bad batch in step ``bad_step``. All other steps
    work."""
    parallel = model_parallel(env, case, plans)
    message = ""
    for step, ranks in enumerate(case.batches):
        good = features_of(case, ranks[env.rank])
        try:
            first, second = parallel(batch if (env.rank, step) == (1, bad_step) else good)
        except InputError as error:
            assert step == bad_step
            message = str(error)
        else:
            (first.sum() + second.sum()).backward()
    return message
