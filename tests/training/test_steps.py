"""The model's arguments, learning rates, clipping and number formats of a run."""

from unittest import mock

import pytest
import torch
from torch import nn

from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.sharding import (
    DistributedModelParallel,
    ShardingPlan,
    construct_module_sharding_plan,
    data_parallel,
)
from embershard.training import load_checkpoint, train
from embershard.training.initial_model import model_arguments
from embershard.training.steps import dense_optimizer, learning_rate_factor
from tests.cases import cases
from tests.training.runs import config, dataset


def test_a_table_has_the_rows_of_its_id_map():
    run = config("unused")
    arguments = model_arguments(run.model, run.training, dataset())
    assert [(t["name"], t["num_embeddings"], t["pooling"]) for t in arguments["tables"]] == [
        ("user", 60, "sum"),
        ("history", 30, "mean"),
        ("item", 40, "sum"),
    ]


@cases(
    ("settings", "factors"),
    {
        # Steps 0 to 10 of 10: two of warm-up, then a fall by an eighth at each step.
        "linear": (
            {"decay": "linear", "warmup_steps": 2, "warmup_start": 0.5},
            [0.5, 0.75, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0],
        ),
        "linear-to-a-part": (
            {"decay": "linear", "decay_end": 0.5},
            [1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5],
        ),
        "cosine": (
            {"decay": "cosine", "warmup_steps": 4, "warmup_start": 1, "decay_end": 0.2},
            # 0.2 + 0.8 * (1 + cos(k * pi / 6)) / 2
            [1, 1, 1, 1, 1, 0.946410, 0.8, 0.6, 0.4, 0.253590, 0.2],
        ),
        "none": ({}, [1] * 11),
    },
)
def test_learning_rates_fall_to_their_end_after_the_last_step(settings, factors):
    training = config("unused", **settings).training
    results = [learning_rate_factor(training, step, 10) for step in range(11)]
    assert results == pytest.approx(factors, abs=1e-6)


@cases(
    ("norm", "expected"),
    {
        # Gradients (3, 0) and (0, 4) have the norm 5.
        "longer": (2.5, [[1.5, 0], [0, 2]]),
        "shorter": (6.0, [[3, 0], [0, 4]]),
        "off": (0.0, [[3, 0], [0, 4]]),
    },
)
def test_gradients_are_scaled_to_the_norm_before_a_step(norm, expected):
    module = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(2)) for _ in range(2)])
    settings = {"dense_optimizer": "sgd", "dense_learning_rate": 1.0, "clip_norm": norm}
    optimizer = dense_optimizer(module, config("unused", **settings).training)
    for parameter, gradient in zip(module, ([3.0, 0.0], [0.0, 4.0]), strict=True):
        parameter.grad = torch.tensor(gradient)
    optimizer.step()
    for parameter, step in zip(module, expected, strict=True):
        torch.testing.assert_close(-parameter.detach(), torch.tensor(step, dtype=torch.float32))


def trained(env, folder):
    settings = {"clip_norm": 0.05, "decay": "cosine", "epochs": 1, "batch_size": 63}
    run = config(folder, dense_optimizer="sgd", dense_learning_rate=0.5, **settings)
    return load_checkpoint(train(run, dataset(), env=env).checkpoint).module.state_dict()


def test_ranks_clip_and_decay_like_one_process(workers, tmp_path):
    weights = trained(None, tmp_path / "alone")
    for rank_weights in workers.run(2, trained, tmp_path / "ranks"):
        for name, weight in weights.items():
            torch.testing.assert_close(rank_weights[name], weight, rtol=1e-4, atol=1e-6)


def clipped_parameters(env):
    """Number of values in the parameters whose norm is bounded."""
    module = nn.Module()
    module.tables = EmbeddingBagCollection(
        [EmbeddingBagConfig(name="t", num_embeddings=5, embedding_dim=4, feature_names=["f"])]
    )
    module.over = nn.Linear(4, 3)
    module.forward = lambda sparse: module.over(module.tables(sparse).values())
    cuts = construct_module_sharding_plan(module.tables, {"t": data_parallel()}, world_size=1)
    model = DistributedModelParallel(module, env, plan=ShardingPlan({"tables": cuts}))
    optimizer = dense_optimizer(model, config("unused", clip_norm=1.0).training)
    with mock.patch("torch.nn.utils.clip_grad_norm_") as clip:
        optimizer.step()
    (parameters, _) = clip.call_args.args
    return sum(parameter.numel() for parameter in parameters)


def test_the_norm_leaves_out_tables_of_the_dense_optimizer(workers):
    assert workers.run(1, clipped_parameters) == [4 * 3 + 3]


def test_layers_train_in_bf16_and_keep_weights_in_fp32(tmp_path, monkeypatch):
    dtypes = set()
    linear = torch.nn.functional.linear

    def recorded(inputs, weight, bias=None):
        out = linear(inputs, weight, bias)
        dtypes.add((weight.dtype, out.dtype, torch.is_grad_enabled()))
        return out

    monkeypatch.setattr(torch.nn.functional, "linear", recorded)
    result = train(config(tmp_path, epochs=1, dense_dtype="bf16"), dataset())
    # Training computes in bf16, evaluation in fp32.
    assert dtypes == {
        (torch.float32, torch.bfloat16, True),
        (torch.float32, torch.float32, False),
    }
    weights = load_checkpoint(result.checkpoint).module.state_dict()
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
