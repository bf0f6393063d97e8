"""SASRec against the paper's attention, place by place of each history."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.models import SASRecConfig, build_model
from embershard.package import Schema, SparseInput
from tests.cases import cases, refused
from tests.models.inputs import (
    DENSE,
    LISTS,
    SCHEMA,
    TABLES,
    arguments_of,
    linear,
    model_of,
    normalized,
    perceptrons,
    pooled,
    sparse,
)


def last_state(state, items, positions, blocks):
    """The paper's blocks over a history without padding. Positions count back from its last id,
    which has position 0."""
    states = [item + positions[len(items) - 1 - place] for place, item in enumerate(items)]
    for number in range(blocks):
        at = f"blocks.{number}"
        inputs = [normalized(state, f"{at}.attention_norm", x) for x in states]
        attended = []
        for place, x in enumerate(inputs):
            query = linear(state, f"{at}.query", x)
            keys = [linear(state, f"{at}.key", y) for y in inputs[: place + 1]]
            products = torch.stack([torch.dot(query, key) for key in keys]) / len(x) ** 0.5
            weights = products.exp() / products.exp().sum()
            values = [linear(state, f"{at}.value", y) for y in inputs[: place + 1]]
            attended.append(sum(w * v for w, v in zip(weights, values, strict=True)))
        states = [x + y for x, y in zip(states, attended, strict=True)]
        states = [
            x + perceptrons(state, f"{at}.feed_forward", y, 2)
            for x in states
            for y in [normalized(state, f"{at}.forward_norm", x)]
        ]
    return normalized(state, "norm", states[-1]) if states else state["norm.bias"]


@pytest.mark.parametrize("tasks", [("score",), ("click", "buy")])
def test_the_last_state_of_a_history_scores_the_candidate(tasks):
    model = model_of("sasrec", tasks, blocks=2, over_layers=(6, 1))
    state = model.state_dict()
    table = model.embedding_collection.embeddings["item_sequence"].weight

    expected = []
    for example, dense in enumerate(DENSE):
        items = [table[row] for row in LISTS["history"][example]]
        user = last_state(state, items, state["positions"], 2)
        product = user * table[LISTS["item"][example][0]]
        features = torch.cat([dense, *pooled(model, example), product])
        expected.append(product.sum() + perceptrons(state, "over_arch", features, 2))

    assert_close(model(DENSE, sparse()), torch.stack(expected), rtol=1e-5, atol=1e-5)


def test_of_a_list_over_the_width_the_first_ids_count():
    arguments = arguments_of("sasrec")
    torch.manual_seed(1)
    longer = build_model("sasrec", arguments | {"history_max": 6})
    shorter = build_model("sasrec", arguments | {"history_max": 3})
    state = longer.state_dict()
    shorter.load_state_dict(state | {"positions": state["positions"][:3]})
    first_three = {**LISTS, "history": [rows[:3] for rows in LISTS["history"]]}

    assert_close(shorter(DENSE, sparse())[2:], longer(DENSE, sparse(first_three))[2:])


UNBOUNDED = Schema(
    dense=SCHEMA.dense, sparse=[SparseInput("user"), SparseInput("history"), SparseInput("item")]
)


@cases(
    ("section", "schema", "parts"),
    {
        "unbounded": ({}, UNBOUNDED, ["'history'"]),
        "unknown": ({"target": "film"}, SCHEMA, ["model sasrec", "got 'film'"]),
    },
)
def test_inputs_that_do_not_fit_are_refused(section, schema, parts):
    config = SASRecConfig.model_validate({"embedding_dim": 4, **section})
    with refused(InputError, *parts):
        config.arguments(TABLES, schema=schema, fused=None)


@cases(
    ("changed", "message"),
    {
        "no-blocks": ({"blocks": 0}, "got 4 and 0"),
        "no-history": ({"history_max": 0}, "got 0 and 2"),
        "unknown": ({"history": "past"}, "got 'past'"),
        "two-logits": ({"over_arch_layer_sizes": [2]}, "over_arch_layer_sizes"),
    },
)
def test_arguments_that_do_not_fit_are_refused(changed, message):
    with refused(InputError, message):
        build_model("sasrec", arguments_of("sasrec") | changed)
