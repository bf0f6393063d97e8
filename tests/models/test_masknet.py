"""MaskNet against its formula, example by example."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.models import build_model
from tests.cases import cases, refused
from tests.models.inputs import (
    DENSE,
    arguments_of,
    linear,
    model_of,
    normalized,
    perceptrons,
    pooled,
    sparse,
)


def block(state, number, x, features, *, first):
    prefix = f"blocks.{number}"
    x = normalized(state, f"{prefix}.input_norm", x) if first else x
    mask = perceptrons(state, f"{prefix}.mask", features, 2)
    return normalized(state, f"{prefix}.norm", linear(state, f"{prefix}.hidden", x * mask))


@pytest.mark.parametrize("parallel", [True, False])
def test_logits_are_those_of_masked_blocks(parallel):
    model = model_of(
        "masknet", ("click", "buy"), block_layers=(5, 6), parallel=parallel, over_layers=(3, 1)
    )
    state = model.state_dict()

    expected = []
    for example, dense in enumerate(DENSE):
        features = torch.cat([dense, *pooled(model, example)])
        first = block(state, 0, features, features, first=True)
        if parallel:
            output = torch.cat([first, block(state, 1, features, features, first=True)])
        else:
            output = block(state, 1, first, features, first=False)
        expected.append(perceptrons(state, "over_arch", output, 2))

    assert_close(model(DENSE, sparse()), torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_a_masks_hidden_layer_is_a_multiple_of_the_features():
    model = model_of("masknet", reduction_factor=2.5)
    assert model.state_dict()["blocks.0.mask._mlp.0._linear.weight"].shape == (35, 2 + 3 * 4)


@cases(
    ("changed", "message"),
    {
        "no-blocks": ({"block_sizes": []}, "got [] and 1.0"),
        "no-width": ({"reduction_factor": 0.0}, "and 0.0"),
        "two-logits": ({"over_arch_layer_sizes": [2]}, "over_arch_layer_sizes"),
    },
)
def test_arguments_that_do_not_fit_are_refused(changed, message):
    with refused(InputError, message):
        build_model("masknet", arguments_of("masknet") | changed)
