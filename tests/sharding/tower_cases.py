"""Cases for worker processes: a model of two towers on two hosts of two ranks."""

from contextlib import nullcontext
from unittest.mock import patch

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from embershard.jagged import KeyedJaggedTensor
from embershard.models import DMT
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
)
from embershard.optim import GradientClipping, GradientClippingOptimizer, KeyedOptimizerWrapper
from embershard.sharding import (
    DistributedModelParallel,
    EmbeddingBagCollectionSharder,
    ShardingEnv,
    ShardingPlan,
    column_wise,
    construct_module_sharding_plan,
    load_state,
    save_state,
    table_column_wise,
    table_row_wise,
    table_wise,
)
from tests.sharding.two_hosts import counted_bytes

RANKS, LOCAL, DIM = 4, 2, 8
SIZES = [5, 3, 0, 4]
STEPS = 5
FEATURES = {"user": 9, "history": 11, "item": 7, "genre": 11, "shop": 5}
TOWERS = [["user", "item"], ["history", "genre", "shop"]]
SETTINGS = {"optimizer": "adagrad", "learning_rate": 0.1, "eps": 1e-6}


def tables():
    sizes = {"users": ["user"], "items": ["item"], "histories": ["history", "genre"], "s": ["shop"]}
    return [
        EmbeddingBagConfig(
            name=name,
            num_embeddings=FEATURES[features[0]],
            embedding_dim=DIM,
            feature_names=features,
            pooling=PoolingType.MEAN if name in ("items", "histories") else PoolingType.SUM,
        )
        for name, features in sizes.items()
    ]


def plan_of(kind):
    """``hosts``: each tower lies on one host. ``ranks``: tables of the second tower lie on both
    hosts. ``empty-host``: all tables lie on host 1."""
    cuts = {
        "users": table_wise(2 if kind == "empty-host" else 1),
        "items": table_row_wise(1 if kind == "empty-host" else 0),
        "histories": table_column_wise(1),
        "s": column_wise([0, 3]) if kind == "ranks" else table_wise(3),
    }
    collection = EmbeddingBagCollection(tables(), device="meta")
    return ShardingPlan(
        {
            "embedding_bag_collection": construct_module_sharding_plan(
                collection, cuts, world_size=RANKS, local_size=LOCAL
            )
        }
    )


def model_of(*, fused, towers=TOWERS):
    torch.manual_seed(3)
    collection = (
        FusedEmbeddingBagCollection(tables(), **SETTINGS)
        if fused
        else EmbeddingBagCollection(tables())
    )
    return DMT(collection, towers, 2, 3, [6, DIM], [10, 1])


def batches(variable=False):
    """Dense inputs, sparse inputs and labels, for each step and rank."""
    generator = torch.Generator().manual_seed(5)
    return [[_batch(size, generator, variable) for size in SIZES] for _ in range(STEPS)]


def _batch(size, generator, variable):
    def numbers(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator)

    strides = [(size + 1) // 2 if variable and name == "user" else size for name in FEATURES]
    lengths = [numbers(0, 4, stride) for stride in strides]
    counts = zip(FEATURES.values(), lengths, strict=True)
    rows = [numbers(-1, rows, int(own.sum())) for rows, own in counts]
    inverse = torch.stack([torch.arange(size) * stride // max(size, 1) for stride in strides])
    settings = {
        "stride_per_key_per_rank": [[stride] for stride in strides],
        "inverse_indices": (list(FEATURES), inverse),
    }
    sparse = KeyedJaggedTensor(
        list(FEATURES), torch.cat(rows), lengths=torch.cat(lengths), **settings if variable else {}
    )
    dense = torch.randn(size, 3, generator=generator)
    return dense, sparse, numbers(0, 2, size, 1).float()


def joined(parts):
    """All ranks' batches as one, in which every example has its own lists."""
    lists = {name: [] for name in FEATURES}
    for dense, sparse, _ in parts:
        for place, name in enumerate(FEATURES):
            own = torch.split(sparse[name].values(), sparse[name].lengths().tolist())
            chosen = range(len(dense))
            if sparse.variable_stride_per_key():
                chosen = sparse.inverse_indices()[1][place]
            lists[name] += [own[at] for at in chosen]
    return (
        torch.cat([dense for dense, *_ in parts]),
        KeyedJaggedTensor(
            list(FEATURES),
            torch.cat([rows for of_key in lists.values() for rows in of_key]),
            lengths=torch.tensor([len(rows) for of_key in lists.values() for rows in of_key]),
        ),
        torch.cat([labels for *_, labels in parts]),
    )


def loss_of(model, batch, ranks=RANKS):
    """Loss and logits of a rank. The factor ``ranks`` makes up for gradients that are averaged."""
    dense, sparse, labels = batch
    logits = model(dense, sparse)
    total = binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    return total * ranks / sum(SIZES), logits


def adagrad_of(model, clip=None):
    """The optimizer of all parameters that do not train in backward."""
    trained = {
        name: named_parameter
        for name, named_parameter in model.named_parameters()
        if named_parameter.requires_grad
    }
    optimizer = KeyedOptimizerWrapper(trained, lambda params: torch.optim.Adagrad(params, lr=0.05))
    if clip is None:
        return optimizer
    return GradientClippingOptimizer(optimizer, GradientClipping.NORM, clip)


def step(model, optimizer, batch, ranks=RANKS):
    """Trains on a batch and returns its logits."""
    loss, logits = loss_of(model, batch, ranks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return logits.detach()


def sharded(env, kind):
    hosts = ShardingEnv.from_process_group(env.process_group, local_size=LOCAL)
    return DistributedModelParallel(
        model_of(fused=False),
        hosts,
        plan=plan_of(kind),
        sharders=[EmbeddingBagCollectionSharder(fused_params=SETTINGS)],
    )


def train(env, kind, folder, settings):
    """Trains on each rank and saves.

    Returns:
        Logits of each step, the weights of towers, and the number of models whose towers stay on
        their hosts.
    """
    model = sharded(env, kind)
    optimizer = adagrad_of(model, settings.get("clip"))
    variable = settings.get("variable", False)
    logits = [step(model, optimizer, parts[env.rank]) for parts in batches(variable)]
    save_state(model, folder, optimizer=optimizer)
    towers = {name: value for name, value in model.state_dict().items() if "towers." in name}
    return logits, towers, len(model.towers)


def resume(env, folder):
    """Loads a state and trains two more steps. Returns their logits."""
    model = sharded(env, "hosts")
    optimizer = adagrad_of(model)
    load_state(model, folder, optimizer=optimizer)
    return [step(model, optimizer, parts[env.rank]) for parts in batches()[:2]]


def bytes_between_hosts(env, is_ordinary):
    """Bytes of vectors and gradients that this rank sends to the other host in a step.

    ``is_ordinary``: True if the vectors of all features are exchanged, as for other models.
    """
    no_towers = patch("embershard.sharding.model_parallel.connect_towers", return_value=[])
    with no_towers if is_ordinary else nullcontext():
        model = sharded(env, "hosts")
    step(model, adagrad_of(model), batches()[0][env.rank])
    with counted_bytes(model.env) as sent:
        loss_of(model, batches()[1][env.rank])[0].backward()
    return sum(sent)
