"""Models are built by name, or refused."""

import json

import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM, DLRM_DCN, MODEL_CONFIGS, build_model, model_names
from embershard.models.own_class import ClassConfig
from embershard.models.registry import parse_config
from embershard.modules import EmbeddingBagCollection, FusedEmbeddingBagCollection, PoolingType
from tests.cases import cases, refused

ARGUMENTS = {
    "tables": [
        {"name": "u", "num_embeddings": 5, "embedding_dim": 4, "feature_names": ["user"]},
        {
            "name": "i",
            "num_embeddings": 7,
            "embedding_dim": 4,
            "feature_names": ["item", "history"],
            "pooling": "mean",
        },
    ],
    "dense_in_features": 3,
    "dense_arch_layer_sizes": [6, 4],
    "over_arch_layer_sizes": [5, 1],
    "fused": None,
}
ADAGRAD = {"optimizer": "rowwise_adagrad", "learning_rate": 0.25, "eps": 1e-6}


def embeddings_of(model):
    return model.sparse_arch.embedding_bag_collection


def test_every_name_is_listed():
    assert model_names() == [
        "dlrm",
        "dlrm_dcn",
        "deepfm",
        "masknet",
        "ple",
        "din",
        "sasrec",
        "two_tower",
        "dmt",
    ]


def test_a_section_is_read_by_the_class_of_its_name():
    for name in model_names():
        assert type(parse_config({"name": name})) is MODEL_CONFIGS[name]
    assert type(parse_config({})) is MODEL_CONFIGS["dlrm"]
    assert type(parse_config({"class": "ranker:Ranker"})) is ClassConfig


def test_dlrm_has_the_tables_and_layers_asked_for():
    model = build_model("dlrm", ARGUMENTS)

    assert isinstance(model, DLRM)
    assert isinstance(embeddings_of(model), EmbeddingBagCollection)
    tables = embeddings_of(model).embedding_bag_configs()
    assert [(t.name, t.num_embeddings, t.embedding_dim, t.feature_names) for t in tables] == [
        ("u", 5, 4, ("user",)),
        ("i", 7, 4, ("item", "history")),
    ]
    assert [t.pooling for t in tables] == [PoolingType.SUM, PoolingType.MEAN]
    shapes = [tuple(p.shape) for n, p in model.named_parameters() if n.endswith("weight")]
    assert shapes == [(5, 4), (7, 4), (6, 3), (4, 6), (5, 4 + 6), (1, 5)]


def test_dlrm_dcn_has_the_cross_layers_asked_for():
    model = build_model("dlrm_dcn", ARGUMENTS | {"dcn_num_layers": 2, "dcn_low_rank_dim": 5})

    assert isinstance(model, DLRM_DCN)
    width = 4 * (1 + 3)  # The dense vector, user, item and history.
    kernels = [tuple(w.shape) for w in model.inter_arch.crossnet.W_kernels]
    assert kernels == [(width, 5), (width, 5)]


@cases(
    ("name", "settings"),
    {"dlrm": ("dlrm", {}), "dcn": ("dlrm_dcn", {"dcn_num_layers": 1, "dcn_low_rank_dim": 2})},
)
def test_a_model_has_a_logit_for_each_task(name, settings):
    tasks = {"buy": "bce", "click": "bce", "seconds": "mse"}
    layers = {"over_arch_layer_sizes": [5, 3]}
    model = build_model(
        name, json.loads(json.dumps(ARGUMENTS | settings | layers | {"tasks": tasks}))
    )
    assert list(model.tasks.items()) == list(tasks.items())
    sparse = KeyedJaggedTensor(
        ["user", "item", "history"], torch.zeros(6, dtype=torch.int64), lengths=torch.ones(6).long()
    )
    assert model(torch.ones(2, 3), sparse).shape == (2, 3)
    assert build_model("dlrm", ARGUMENTS).tasks == {"score": "bce"}


def test_fused_dlrm_has_the_optimizer_asked_for():
    model = build_model("dlrm", ARGUMENTS | {"fused": ADAGRAD})
    fused = embeddings_of(model)

    assert isinstance(fused, FusedEmbeddingBagCollection)
    assert (fused.optimizer.name, fused.optimizer.learning_rate, fused.optimizer.eps) == (
        "rowwise_adagrad",
        0.25,
        1e-6,
    )


def test_arguments_that_went_through_json_build_the_same_model():
    torch.manual_seed(0)
    straight = build_model("dlrm", ARGUMENTS)
    torch.manual_seed(0)
    again = build_model("dlrm", json.loads(json.dumps(ARGUMENTS)))

    assert_close(dict(again.state_dict()), dict(straight.state_dict()), rtol=0, atol=0)


def test_a_fused_state_dict_loads_into_the_plain_model():
    fused = build_model("dlrm", ARGUMENTS | {"fused": ADAGRAD})
    plain = build_model("dlrm", ARGUMENTS)

    plain.load_state_dict(fused.state_dict())

    assert_close(dict(plain.state_dict()), dict(fused.state_dict()), rtol=0, atol=0)


@cases(
    ("name", "changes", "parts"),
    {
        "unknown-name": (
            "dlmr",
            {},
            ["model", "two_tower, dmt"],
        ),
        "unknown-argument": (
            "dlrm",
            {"depth": 3},
            ["'depth'", "got 3"],
        ),
        "missing-argument": (
            "dlrm",
            {"tables": [{"name": "u"}]},
            ["'tables.0.num_embeddings'", "got none"],
        ),
        "text-for-a-number": (
            "dlrm",
            {"dense_in_features": "3"},
            ["'dense_in_features'", "got '3'"],
        ),
        "unknown-pooling": (
            "dlrm",
            {"tables": [ARGUMENTS["tables"][0] | {"pooling": "max"}]},
            ["'tables.0.pooling'", "got 'max'"],
        ),
        "unknown-optimizer": (
            "dlrm",
            {"fused": {"optimizer": "adam", "learning_rate": 0.1}},
            ["one of rowwise_adagrad, adagrad, sgd"],
        ),
        "unknown-loss": (
            "dlrm",
            {"tasks": {"click": "hinge"}},
            ["argument 'tasks.click'", "got 'hinge'"],
        ),
        "tasks-without-logits": (
            "dlrm",
            {"tasks": {"click": "bce", "buy": "bce"}},
            ["'click'", "'buy'"],
        ),
        "no-tables": ("dlrm", {"tables": []}, ["tables"]),
    },
)
def test_models_that_cannot_be_built_are_refused(name, changes, parts):
    with refused(InputError, *parts):
        build_model(name, ARGUMENTS | changes)
