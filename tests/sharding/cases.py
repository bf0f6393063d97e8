"""Cases that worker processes run; see workers.py."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from embershard.errors import DataError
from embershard.jagged import KeyedJaggedTensor, KeyedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingCollection,
    PoolingType,
)
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    EmbeddingCollectionSharder,
    RowWiseAdagrad,
    ShardingPlan,
    construct_module_sharding_plan,
    load_state,
    save_state,
)
from tests.sharding.reference import EPS, LEARNING_RATE, loss_of


def collection_of(case, device="cpu"):
    sizes = [
        {"name": name, "num_embeddings": rows, "embedding_dim": dim, "feature_names": features}
        for name, rows, dim, features, _ in case.tables
    ]
    if case.is_sequence:
        module = EmbeddingCollection([EmbeddingConfig(**size) for size in sizes], device=device)
        tables = module.embeddings
    else:
        configs = [
            EmbeddingBagConfig(**size, pooling=PoolingType[pooling])
            for size, (*_, pooling) in zip(sizes, case.tables, strict=True)
        ]
        module = EmbeddingBagCollection(configs, is_weighted=case.is_weighted, device=device)
        tables = module.embedding_bags
    if device == "cpu":
        for name, weight in case.weights.items():
            tables[name].weight.data.copy_(weight)
    return module


def plan_of(case, generator=None, world_size=2, local_size=None, **generators):
    """A plan that cuts every table alike, except those named in ``generators``."""
    tables = {name: generators.get(name, generator) for name, *_ in case.tables}
    return construct_module_sharding_plan(
        collection_of(case, "meta"), tables, world_size=world_size, local_size=local_size
    )


def values_of(output, features):
    """Output of a collection: pooled columns, or the vectors of all ids after a check of their
    lists."""
    if isinstance(output, KeyedTensor):
        return output.values()
    for name, lists in output.items():
        expected = features[name.split("@")[0]].lengths()
        torch.testing.assert_close(lists.lengths(), expected)
    return torch.cat([lists.values() for lists in output.values()])


def features_of(case, batch):
    weights = torch.cat([weights for *_, weights in batch.values()])
    return KeyedJaggedTensor(
        list(batch),
        torch.cat([ids for ids, *_ in batch.values()]),
        weights if case.is_weighted else None,
        torch.cat([lengths for _, lengths, _ in batch.values()]),
    )


def on_device(env, features):
    """Moves features to the device as a loader does: their lengths are known on the host."""
    return features if env.device.type == "cpu" else features.sync().to(env.device)


def variable_features_of(case, batch):
    """Features of one rank's batch of ``make_variable``."""
    weights = torch.cat([weights for _, _, weights, _ in batch.values()])
    return KeyedJaggedTensor(
        list(batch),
        torch.cat([ids for ids, *_ in batch.values()]),
        weights if case.is_weighted else None,
        torch.cat([lengths for _, lengths, *_ in batch.values()]),
        stride_per_key_per_rank=[[len(lengths)] for _, lengths, *_ in batch.values()],
        inverse_indices=(list(batch), torch.stack([inverse for *_, inverse in batch.values()])),
    )


def shard(env, module, plan, optimizer="sgd", comms=None):
    settings = {"optimizer": optimizer, "learning_rate": LEARNING_RATE}
    if optimizer != "sgd":
        settings["eps"] = EPS
    is_pooled = isinstance(module, EmbeddingBagCollection)
    kind = EmbeddingBagCollectionSharder if is_pooled else EmbeddingCollectionSharder
    return DistributedModelParallel(
        nn.ModuleDict({"sparse": module}),
        env,
        plan=ShardingPlan({"sparse": plan}),
        sharders=[kind(fused_params=settings, qcomm_codecs_registry=comms)],
    ).module["sparse"]


def train(env, case, plan, variable=None):
    """Outputs of each step, and this rank's final shards and replicas, each with its optimizer
    state."""
    module = shard(env, collection_of(case), plan, case.optimizer)
    dense = list(module.parameters())
    kind = {"adagrad": torch.optim.Adagrad, "rowwise_adagrad": RowWiseAdagrad}.get(case.optimizer)
    optimizer = None
    if dense and kind is None:
        optimizer = torch.optim.SGD(dense, lr=LEARNING_RATE)
    elif dense:
        optimizer = kind(dense, lr=LEARNING_RATE, eps=EPS)
    outputs = []
    for step, ranks in enumerate(case.batches):
        if variable is None:
            features = features_of(case, ranks[env.rank])
        else:
            features = variable_features_of(case, variable[step][env.rank])
        features = on_device(env, features)
        output = values_of(module(features), features)
        loss_of(output, step).backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
        outputs.append(output.detach())
    shards = local_state(module, optimizer)
    tables = module.embeddings if case.is_sequence else module.embedding_bags
    cut = {shard.table for shard, *_ in shards}
    replicas = {
        name: (weight.detach(), optimizer.state[weight].get("sum"))
        for name, weight in ((name, tables[name].weight) for name in tables if name not in cut)
    }
    return outputs, shards, replicas


def vectors_of_each(env, case, plan, batches):
    """Pooled vectors of each batch on this rank."""
    module = shard(env, collection_of(case), plan)
    return [module(batch).values().detach() for batch in batches]


def gradients_of_two_types(env, case, plan):
    """Gradients of a bfloat16 and a float64 parameter. Each rank's own gradient is its number."""
    model = nn.ModuleDict({"sparse": collection_of(case)})
    for name, dtype in (("bf16", torch.bfloat16), ("fp64", torch.float64)):
        model.register_parameter(name, nn.Parameter(torch.zeros(2, dtype=dtype)))
    sharders = [EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd"})]
    parallel = DistributedModelParallel(
        model, env, plan=ShardingPlan({"sparse": plan}), sharders=sharders
    )
    ((parallel.module.bf16.sum() + parallel.module.fp64.sum()) * env.rank).backward()
    return parallel.module.bf16.grad, parallel.module.fp64.grad


class TwoCollections(nn.Module):
    """Two collections of the same tables, a dense parameter, and a parameter that is not used."""

    def __init__(self, case):
        super().__init__()
        self.first, self.second = collection_of(case), collection_of(case)
        self.scale = nn.Parameter(torch.ones(1))
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, features, others=None):
        others = features if others is None else others
        return self.first(features).values(), self.second(features=others).values()


def model_parallel(env, case, plans, model=None):
    return DistributedModelParallel(
        TwoCollections(case) if model is None else model,
        env,
        plan=ShardingPlan(dict(zip(["first", "second"], plans, strict=True))),
        sharders=[EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd"})],
    )


def train_model(env, case, plans):
    """Results of each step: outputs of both collections, number of exchanges of inputs, this rank's
    own gradient of the scale, its gradient after backward, and the gradient of the unused
    parameter."""
    parallel = model_parallel(env, case, plans)
    steps = []
    for ranks in case.batches:
        parallel.module.scale.grad = None
        with count_exchanges(env.input_group) as counted:
            first, second = parallel(features_of(case, ranks[env.rank]))
        own = (first.detach().sum() + second.detach().sum()).reshape(1)
        (parallel.module.scale * (first.sum() + second.sum())).sum().backward()
        gradients = own, parallel.module.scale.grad, parallel.module.unused.grad
        steps.append((first.detach(), second.detach(), len(counted), gradients))
    return steps


def gradient_that_rank_0_alone_has(env, case, plans):
    """This rank's own gradient of the scale, and its gradient after backward. Only the loss of rank
    0 depends on the scale."""
    parallel = model_parallel(env, case, plans)
    first, second = parallel(features_of(case, case.batches[0][env.rank]))
    loss = first.sum() + second.sum()
    (loss if env.rank else parallel.module.scale * loss).sum().backward()
    return 0 if env.rank else loss.detach(), parallel.module.scale.grad


def gradient_of_unfrozen(env, case, plans):
    """This rank's own gradient of the scale, and its gradient after backward. All dense parameters
    were frozen when the model was sharded and in its first step."""
    model = TwoCollections(case)
    for parameter in (model.scale, model.unused):
        parameter.requires_grad_(False)
    parallel = model_parallel(env, case, plans, model)
    losses = []
    for ranks in case.batches[:2]:
        first, second = parallel(features_of(case, ranks[env.rank]))
        losses.append(first.detach().sum() + second.detach().sum())
        (model.scale * (first.sum() + second.sum())).sum().backward()
        model.scale.requires_grad_(True)
    return losses[1].reshape(1), model.scale.grad


class BothKinds(nn.Module):
    """The same tables in a collection that pools and a fused one that does not."""

    def __init__(self, case):
        super().__init__()
        self.pooled = collection_of(replace(case, is_sequence=False))
        self.lists = FusedEmbeddingCollection(
            collection_of(case, "meta").embedding_configs(), optimizer="sgd"
        )
        for name, weight in case.weights.items():
            self.lists.embeddings[name].weight.data.copy_(weight)

    def forward(self, features):
        return self.pooled(features), self.lists(features)


def train_both_kinds(env, case, plans):
    """Results of each step: number of exchanges of inputs, pooled columns, and sums of the lists of
    vectors."""
    parallel = DistributedModelParallel(
        BothKinds(case),
        env,
        plan=ShardingPlan(dict(zip(["pooled", "lists"], plans, strict=True))),
        sharders=[
            EmbeddingBagCollectionSharder(fused_params={"optimizer": "sgd"}),
            EmbeddingCollectionSharder(),
        ],
    )
    steps = []
    for ranks in case.batches:
        with count_exchanges(env.input_group) as counted:
            pooled, lists = parallel(features_of(case, ranks[env.rank]))
        sums = torch.cat(
            [
                torch.segment_reduce(ids.values(), "sum", lengths=ids.lengths(), initial=0)
                for ids in lists.values()
            ],
            dim=1,
        )
        (pooled.values().sum() + sums.sum()).backward()
        steps.append((len(counted), pooled.values().detach(), sums.detach()))
    return steps


def gradient_after_failed_backward(env, case, plans):
    """This rank's own gradient of the scale, and its gradient after backward. The step before
    failed in its backward pass after the scale had its gradient."""
    parallel = model_parallel(env, case, plans)
    scale, unused = parallel.module.scale, parallel.module.unused

    def fail(gradient):
        assert scale.grad is not None
        raise FailedBackwardError

    failing = unused.sum()
    failing.register_hook(fail)
    loss = failing * 2
    with pytest.raises(FailedBackwardError):
        (loss + scale.sum()).backward()
    scale.grad = None
    first, second = parallel(features_of(case, case.batches[0][env.rank]))
    (scale * (first.sum() + second.sum())).sum().backward()
    return (first.detach().sum() + second.detach().sum()).reshape(1), scale.grad


class FailedBackwardError(Exception):
    """Raised by a hook in the backward pass."""


def exchanges_of_arguments(env, case, plans, arguments):
    """Number of exchanges of inputs in each step. ``arguments(rank, step, features, others)``
    returns the model's arguments."""
    parallel = model_parallel(env, case, plans)
    exchanges = []
    for step, ranks in enumerate(case.batches):
        features, others = (features_of(case, ranks[env.rank]) for _ in range(2))
        args, kwargs = arguments(env.rank, step, features, others)
        with count_exchanges(env.input_group) as counted:
            first, second = parallel(*args, **kwargs)
        (first.sum() + second.sum()).backward()
        exchanges.append(len(counted))
    return exchanges


@contextmanager
def count_exchanges(group):
    """Yields a list that collects the calls of all_to_all_single in a group."""
    called, original = [], dist.all_to_all_single

    def counting(*args, **kwargs):
        if kwargs["group"] is group:
            called.append(args)
        return original(*args, **kwargs)

    dist.all_to_all_single = counting
    try:
        yield called
    finally:
        dist.all_to_all_single = original


def local_state(module, optimizer=None):
    """Shard, weight and optimizer state of each local shard. The state is Adagrad's, or that of
    ``optimizer`` for the dense kernel."""
    return [
        (
            local_shard.shard,
            local_shard.weight,
            local_shard.state.get("momentum1")
            if local_shard.parameter is None or optimizer is None
            else optimizer.state[local_shard.parameter].get("sum"),
        )
        for local_shard in module.local_shards()
    ]


def dense_optimizer(parallel):
    dense = list(parallel.parameters())
    return torch.optim.Adagrad(dense, lr=LEARNING_RATE) if dense else None


def sharded(env, case, plan, settings=None, **options):
    settings = settings or {"optimizer": case.optimizer, "learning_rate": LEARNING_RATE}
    return DistributedModelParallel(
        nn.ModuleDict({"sparse": collection_of(case)}),
        env,
        plan=ShardingPlan({"sparse": plan}),
        sharders=[EmbeddingBagCollectionSharder(fused_params=settings)],
        **options,
    )


def save_and_read(env, case, plan, folder, gives_group=True):
    """Trains and saves. Returns this rank's shards and the state of replicated tables, or the errno
    if saving fails."""
    parallel = sharded(env, case, plan)
    optimizer = dense_optimizer(parallel)
    for step, ranks in enumerate(case.batches):
        features = on_device(env, features_of(case, ranks[env.rank]))
        output = parallel.module["sparse"](features).values()
        loss_of(output, step).backward()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
    try:
        group = env.process_group if gives_group else None
        save_state(parallel, folder, optimizer=optimizer, group=group)
    except OSError as error:
        return error.errno
    return local_state(parallel.module["sparse"]), replicated(parallel, optimizer)


def load_and_read(env, case, plan, folder, gives_group=True):
    """Loads a state. Returns this rank's shards, the messages of loading, and the state of
    replicated tables; or the error message."""
    parallel = sharded(env, case, plan)
    for local in parallel.module["sparse"].local_shards():
        local.weight.fill_(torch.nan)
    optimizer = dense_optimizer(parallel)
    try:
        group = env.process_group if gives_group else None
        messages = load_state(parallel, folder, optimizer=optimizer, group=group)
    except DataError as error:
        return str(error)
    return local_state(parallel.module["sparse"]), messages, replicated(parallel, optimizer)


def replicated(parallel, optimizer):
    results = {name: parameter.detach() for name, parameter in parallel.named_parameters()}
    for name, named_parameter in parallel.named_parameters():
        results |= {
            f"{name} {key}": value for key, value in optimizer.state[named_parameter].items()
        }
    return results
