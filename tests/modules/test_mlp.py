"""MLP against layers by hand, its activated layers, and refusals."""

import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.modules import MLP
from tests.cases import cases, refused


def by_hand(mlp, x, activations):
    state = mlp.state_dict()
    for layer, activation in enumerate(activations):
        prefix = f"_mlp.{layer}._linear"
        x = x @ state[f"{prefix}.weight"].T
        if f"{prefix}.bias" in state:
            x = x + state[f"{prefix}.bias"]
        x = activation(x)
    return x


def linear(x):
    return x


@cases(
    ("settings", "activations"),
    {
        "a-tower-is-activated-throughout": ({"layer_sizes": [5, 3]}, [torch.relu, torch.relu]),
        "a-last-width-of-1-stays-linear": ({"layer_sizes": [5, 1]}, [torch.relu, linear]),
        "asked-for": ({"layer_sizes": [5, 1], "activate_last": True}, [torch.relu, torch.relu]),
        "asked-not-to": ({"layer_sizes": [5, 3], "activate_last": False}, [torch.relu, linear]),
        "sigmoid": ({"layer_sizes": [3], "bias": False, "activation": "sigmoid"}, [torch.sigmoid]),
        "tanh": ({"layer_sizes": [3, 2], "activation": "tanh"}, [torch.tanh] * 2),
        "a-function": ({"layer_sizes": [3, 2], "activation": torch.tanh}, [torch.tanh] * 2),
        "a-class": ({"layer_sizes": [3], "activation": torch.nn.Sigmoid}, [torch.sigmoid]),
        "a-module": (
            {"layer_sizes": [3], "activation": torch.nn.SiLU()},
            [torch.nn.functional.silu],
        ),
    },
)
def test_output_is_that_of_the_layers_by_hand(settings, activations):
    torch.manual_seed(0)
    mlp = MLP(4, **settings)
    x = torch.randn(20, 4)

    assert_close(mlp(x), by_hand(mlp, x, activations))


def test_the_input_width_has_torchrecs_name_too():
    assert MLP(in_size=4, layer_sizes=[3]).layers[0].linear.in_features == 4


@cases(
    ("sizes", "received"),
    {"both": ({"in_features": 4, "in_size": 4}, "both"), "neither": ({}, "neither")},
)
def test_two_input_widths_or_none_are_refused(sizes, received):
    with refused(InputError, f"got {received}"):
        MLP(layer_sizes=[3], **sizes)


def test_state_dict_keys_are_torchrecs():
    assert list(MLP(4, [3, 2]).state_dict()) == [
        "_mlp.0._linear.weight",
        "_mlp.0._linear.bias",
        "_mlp.1._linear.weight",
        "_mlp.1._linear.bias",
    ]


def test_without_bias_there_is_none():
    assert list(MLP(4, [3], bias=False).state_dict()) == ["_mlp.0._linear.weight"]


@cases(
    ("settings", "parts"),
    {
        "none": ({"layer_sizes": []}, ["at least one of layer_sizes", "got 4 and []"]),
        "width-0": ({"layer_sizes": [3, 0]}, ["at least 1"]),
        "unknown-activation": (
            {"layer_sizes": [3], "activation": "gelu"},
            ["one of relu, sigmoid, tanh, a function or a module"],
        ),
    },
)
def test_layers_that_cannot_be_built_are_refused(settings, parts):
    with refused(InputError, *parts):
        MLP(4, **settings)
