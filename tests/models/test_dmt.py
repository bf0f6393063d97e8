"""Disaggregated multi-tower against its formula, example by example."""

from itertools import combinations

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
    perceptrons,
    pooled,
    sparse,
)

LAYERS = {"dense_layers": (5, 4), "over_layers": (6, 1)}


def products(vectors):
    return torch.stack([torch.dot(left, right) for left, right in combinations(vectors, 2)])


def test_logits_are_those_of_compressed_towers():
    model = model_of(
        "dmt", ("click", "buy"), towers=[["user", "item"], ["history"]], tower_vectors=3, **LAYERS
    )
    state = model.state_dict()

    expected = []
    for example, numbers in enumerate(DENSE):
        user, history, item = pooled(model, example)
        first = torch.cat([user, products([user, item]), item])
        dense = perceptrons(state, "dense_arch.model", numbers, 2, activate_last=True)
        vectors = [
            dense,
            *linear(state, "towers.0.linear", first).split(4),
            *linear(state, "towers.1.linear", history).split(4),
        ]
        features = torch.cat([dense, products(vectors)])
        hidden = perceptrons(state, "over_arch.model.0", features, 1, activate_last=True)
        expected.append(linear(state, "over_arch.model.1", hidden))

    assert len(vectors) == 1 + 2 * 3
    assert_close(model(DENSE, sparse()), torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_towers_share_the_inputs_evenly_by_default():
    arguments = arguments_of("dmt", **LAYERS)
    assert arguments["towers"] == [["user"], ["history", "item"]]
    arguments = arguments_of("dmt", tower_count=3, **LAYERS)
    assert arguments["towers"] == [["user"], ["history"], ["item"]]


@cases(
    ("section", "parts"),
    {
        "unknown": ({"towers": [["user", "age"]]}, ["towers", "got ['age']"]),
        "missing": ({"towers": [["user"], ["item"]]}, ["in exactly one tower"]),
        "twice": ({"towers": [["user", "history"], ["item", "user"]]}, ["in exactly one tower"]),
        "too-many": ({"tower_count": 4}, ["no empty tower"]),
    },
)
def test_towers_that_do_not_fit_are_refused(section, parts):
    with refused(InputError, *parts):
        build_model("dmt", arguments_of("dmt", **LAYERS, **section))
