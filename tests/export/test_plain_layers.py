"""Layers with computed weights and embeddings with max_norm are exported as they evaluate."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from embershard.export.program_builder import build_program
from tests.cases import cases
from tests.export.expanding import Case, Forward
from tests.export.models import SCHEMA, collection
from tests.export.test_refusal_remedies import refusal_of

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")

LARGEST = 0.1
"""Norm of a row."""


class Doubled(nn.Module):
    def forward(self, weight):
        return weight * 2


def parametrized(layer):
    parametrize.register_parametrization(layer, "weight", Doubled())
    parametrize.register_parametrization(layer, "bias", Doubled())
    return layer


def after_training(make):
    """A layer after one batch in training mode, which moves the vectors of a power iteration."""
    layer = make(nn.Linear(4, 8))
    layer.train()(torch.ones(2, 4))
    return layer


def over_item(layer):
    torch.manual_seed(3)
    forward = lambda m, d, s: m.layer(m.embeddings(s)["item"]).flatten(1)  # noqa: E731
    return Forward(forward, embeddings=collection(), layer=layer)


def state_of(module):
    """The parts of a module that an export may not change: classes, hooks and tensors."""
    return (
        [
            (name, type(named_module), list(named_module._forward_pre_hooks))
            for name, named_module in module.named_modules()
        ],
        {name: value.clone() for name, value in module.state_dict().items()},
    )


def assert_exported(module):
    kinds, values = state_of(module)
    case = Case(module, SCHEMA)
    with torch.no_grad():
        expected = copy.deepcopy(module).eval()(*case.module_inputs())
    program = build_program(module, SCHEMA, seed=0)

    torch.testing.assert_close(program.script(*case.program_inputs())["score"], expected)
    assert state_of(module)[0] == kinds
    torch.testing.assert_close(dict(module.state_dict()), values, rtol=0, atol=0)
    return program


COMPUTED = {
    "weight_norm": lambda: after_training(parametrizations.weight_norm),
    "spectral_norm": lambda: after_training(parametrizations.spectral_norm),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(4, 8)),
    "of-ones-own": lambda: parametrized(nn.Linear(4, 8)),
    "former-weight_norm": lambda: detached(after_training(nn.utils.weight_norm)),
    "former-spectral_norm": lambda: detached(after_training(nn.utils.spectral_norm)),
    "pruned": lambda: detached(prune.l1_unstructured(nn.Linear(4, 8), "weight", 0.5)),
    "pruned-twice": lambda: detached(
        prune.l1_unstructured(
            prune.random_unstructured(nn.Linear(4, 8), "weight", 0.3), "weight", 0.5
        )
    ),
}


def detached(layer):
    """Detaches the computed weight, which `copy.deepcopy` would refuse."""
    layer.weight = layer.weight.detach()
    return layer


@pytest.mark.parametrize("name", COMPUTED)
def test_a_computed_weight_is_exported_with_its_value(name):
    torch.manual_seed(0)
    program = assert_exported(over_item(COMPUTED[name]()))
    assert any(node.op == "call_module" for node in program.graph.nodes)


def test_a_recurrent_layers_computed_weight_is_exported():
    torch.manual_seed(0)
    layer = parametrizations.weight_norm(nn.GRU(4, 3, batch_first=True), "weight_hh_l0")
    module = over_item(layer)
    module.function = lambda m, d, s: m.layer(m.embeddings(s)["item"].unsqueeze(1))[0].flatten(1)
    assert_exported(module)


def test_a_pruned_layer_is_rounded_to_bfloat16_as_any_other():
    module = over_item(prune.l1_unstructured(nn.Linear(4, 8), "weight", 0.5))
    program = build_program(module, SCHEMA, dtype="bfloat16", seed=0)
    assert program.float32 is not None
    assert "weight_orig" in dict(module.layer.named_parameters())


def rows_of(d):
    """A row between 0 and 9 for each example, computed from its price."""
    return (d[:, 1] * 5).long().remainder(10)


def embedding():
    return nn.Embedding(10, 4, max_norm=LARGEST)


def looked_up(m, d, s):
    return m.layer(rows_of(d)) + m.embeddings(s)["item"]


def pooled(m, d, s):
    return m.layer(rows_of(d).unsqueeze(1)) + m.embeddings(s)["item"]


@cases(
    ("forward", "make"),
    {
        "embedding": (looked_up, embedding),
        "bag": (pooled, lambda: nn.EmbeddingBag(10, 4, max_norm=LARGEST)),
        "sum-of-magnitudes": (
            looked_up,
            lambda: nn.Embedding(10, 4, max_norm=LARGEST, norm_type=1.0),
        ),
    },
)
def test_all_rows_over_max_norm_are_served_scaled(forward, make):
    torch.manual_seed(0)
    module = Forward(forward, embeddings=collection(), layer=make())
    before = module.layer.weight.detach().clone()
    program = build_program(module, SCHEMA, seed=0)

    assert torch.equal(module.layer.weight, before)
    assert module.layer.max_norm == LARGEST
    norms = before.norm(p=module.layer.norm_type, dim=1, keepdim=True)
    scaled = before * torch.where(norms > LARGEST, LARGEST / norms, 1.0)  # The definition.
    dense = torch.zeros(10, 2)
    dense[:, 0] = torch.arange(10) / 5 + 0.01  # Column 0 is the price.
    scores = program.script(
        [torch.zeros(1, 1), torch.zeros(1, 8)],
        [dense, torch.zeros(10, 4)],
        torch.zeros(10, dtype=torch.int64),
    )["score"]
    torch.testing.assert_close(scores, scaled, rtol=1e-4, atol=1e-6)


def test_a_layer_that_shares_rows_with_max_norm_has_them_scaled():
    module = Forward(
        lambda m, d, s: m.linear(m.layer(rows_of(d)) + m.embeddings(s)["item"]),
        embeddings=collection(),
        layer=embedding(),
        linear=nn.Linear(4, 10, bias=False),
    )
    module.linear.weight = module.layer.weight
    program = build_program(module, SCHEMA, seed=0)
    assert module.linear.weight is module.layer.weight
    assert float(module.linear.weight.detach().norm(dim=1).min()) > LARGEST
    scores = program.script(
        [torch.zeros(1, 1), torch.zeros(1, 8)],
        [torch.zeros(1, 2), torch.zeros(1, 4)],
        torch.zeros(1, dtype=torch.int64),
    )["score"]
    # The product of row 0 with itself.
    assert float(scores[0, 0]) == pytest.approx(LARGEST**2, rel=1e-4)


def test_max_norm_of_a_function_is_refused_with_the_layer_to_use():
    def forward(m, d, s):
        vectors = nn.functional.embedding(rows_of(d), m.layer.weight, max_norm=LARGEST)
        return vectors + m.embeddings(s)["item"]

    module = Forward(forward, embeddings=collection(), layer=nn.Embedding(10, 4))
    before = module.layer.weight.detach().clone()
    message = refusal_of(module)
    assert "nn.functional.embedding(rows_of(d), m.layer.weight, max_norm=LARGEST)" in message
    assert "it writes into its operand; write nn.Embedding(..., max_norm=...)" in message
    assert torch.equal(module.layer.weight, before)
