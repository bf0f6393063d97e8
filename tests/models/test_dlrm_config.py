"""Settings of a DLRM become arguments that build it."""

import json

from pydantic import ValidationError

from embershard.kernels import FusedOptimizer
from embershard.models import DLRMConfig, build_model
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
)
from embershard.package import DenseInput, Schema
from tests.cases import cases, refused

CONFIG = DLRMConfig(embedding_dim=8, dense_layers=(5, 8), over_layers=(6, 1))
TABLES = [
    EmbeddingBagConfig(name="u", num_embeddings=5, embedding_dim=8, feature_names=["user"]),
    EmbeddingBagConfig(
        name="i",
        num_embeddings=7,
        embedding_dim=8,
        feature_names=["item", "history"],
        pooling=PoolingType.MEAN,
    ),
]
SCHEMA = Schema(dense=[DenseInput("a"), DenseInput("b"), DenseInput("c")])
FUSED = FusedOptimizer(name="sgd", learning_rate=0.25, eps=1e-6)


def test_arguments_are_json_and_say_all_that_was_chosen():
    arguments = CONFIG.arguments(TABLES, schema=SCHEMA, fused=FUSED)

    assert json.loads(json.dumps(arguments)) == {
        "tables": [
            {
                "name": "u",
                "num_embeddings": 5,
                "embedding_dim": 8,
                "feature_names": ["user"],
                "pooling": "sum",
            },
            {
                "name": "i",
                "num_embeddings": 7,
                "embedding_dim": 8,
                "feature_names": ["item", "history"],
                "pooling": "mean",
            },
        ],
        "dense_in_features": 3,
        "dense_arch_layer_sizes": [5, 8],
        "over_arch_layer_sizes": [6, 1],
        "fused": {"optimizer": "sgd", "learning_rate": 0.25, "eps": 1e-6},
    }


def test_several_tasks_are_kept_and_widen_the_last_layer():
    tasks = {"click": "bce", "seconds": "mse"}
    arguments = CONFIG.arguments(TABLES, schema=SCHEMA, fused=None, tasks=tasks)
    assert arguments["tasks"] == tasks
    assert arguments["over_arch_layer_sizes"] == [6, 2]
    assert CONFIG.over_layers == (6, 1)


@cases(
    ("fused", "kind"),
    {
        "plain": (None, EmbeddingBagCollection),
        "fused": (FUSED, FusedEmbeddingBagCollection),
    },
)
def test_arguments_build_what_was_chosen(fused, kind):
    model = build_model(CONFIG.name, CONFIG.arguments(TABLES, schema=SCHEMA, fused=fused))

    embeddings = model.sparse_arch.embedding_bag_collection
    assert isinstance(embeddings, kind)
    configs = embeddings.embedding_bag_configs()
    assert [(t.name, t.feature_names, t.pooling) for t in configs] == [
        ("u", ("user",), PoolingType.SUM),
        ("i", ("item", "history"), PoolingType.MEAN),
    ]
    assert {tuple(p.shape) for p in model.dense_arch.parameters()} == {(5, 3), (5,), (8, 5), (8,)}


@cases(
    ("settings", "parts"),
    {
        "name": ({"name": "dlmr"}, ["name\n", "'dlrm'"]),
        "dim": ({"embedding_dim": 0}, ["embedding_dim\n", "greater than or equal to 1"]),
        "dense": ({"dense_layers": (4,)}, ["dense_layers\n", "last layer 16 wide"]),
        "defaults": ({"embedding_dim": 8}, ["dense_layers\n", "last layer 8 wide"]),
        "huge": ({"over_layers": (10**12, 1)}, ["over_layers.0\n", "less than or equal to 65536"]),
        "one-over-layer": ({"over_layers": (1,)}, ["over_layers\n", "at least two"]),
        "two-scores": ({"over_layers": (4, 2)}, ["over_layers\n", "the last 1 wide"]),
        "unknown-key": ({"depth": 3}, ["depth\n", "not permitted"]),
    },
)
def test_layers_that_contradict_one_another_are_refused(settings, parts):
    with refused(ValidationError, *parts):
        DLRMConfig(**settings)
