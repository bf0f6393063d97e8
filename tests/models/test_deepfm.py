"""DeepFM against the paper's sums, pair of fields by pair of fields."""

from itertools import combinations

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.models import build_model
from tests.cases import cases, refused
from tests.models.inputs import DENSE, arguments_of, model_of, perceptrons, pooled, sparse


@pytest.mark.parametrize("tasks", [("score",), ("click", "buy")])
def test_logits_are_the_papers_fm_and_deep_parts(tasks):
    model = model_of("deepfm", tasks, over_layers=(6, 5, 1))
    state = model.state_dict()

    expected = []
    for example, dense in enumerate(DENSE):
        fields = [x * vector for x, vector in zip(dense, state["dense_vectors"], strict=True)]
        fields += pooled(model, example)
        first_order = sum(pooled(model, example, "_first_order"))
        first_order = first_order + sum(
            x * weight for x, weight in zip(dense, state["dense_weights"], strict=True)
        )
        pairs = sum(torch.dot(left, right) for left, right in combinations(fields, 2))
        deep = perceptrons(state, "deep.dense_module", torch.cat(fields), 3)
        expected.append(first_order + pairs + deep)

    assert_close(model(DENSE, sparse()), torch.stack(expected), rtol=1e-5, atol=1e-5)


@cases(
    ("changed", "message"),
    {
        "first-order-of-another-width": (
            {"first_order_features": ["user@user"]},
            "{'user@user': 4}",
        ),
        "two-logits": ({"over_arch_layer_sizes": [3, 2]}, "over_arch_layer_sizes"),
    },
)
def test_arguments_that_do_not_fit_are_refused(changed, message):
    with refused(InputError, message):
        build_model("deepfm", arguments_of("deepfm") | changed)
