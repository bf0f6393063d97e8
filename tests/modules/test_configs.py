"""Table configs: what is kept, and what is refused."""

import pytest
import torch

from embershard.errors import InputError
from embershard.modules import EmbeddingBagConfig, PoolingType
from tests.cases import cases, refused

GOOD = {"name": "t", "num_embeddings": 9, "embedding_dim": 4, "feature_names": ["a", "b"]}


def test_defaults_are_a_sum_and_a_range_of_one_over_root_rows():
    config = EmbeddingBagConfig(**GOOD)

    assert config.pooling is PoolingType.SUM
    assert config.feature_names == ("a", "b")
    assert config.init_range() == pytest.approx((-1 / 3, 1 / 3))


def test_one_end_of_the_range_may_be_given():
    assert EmbeddingBagConfig(**GOOD, weight_init_max=0.5).init_range() == pytest.approx(
        (-1 / 3, 0.5)
    )


def test_init_fn_fills_the_weights():
    weight = torch.empty(9, 4)

    EmbeddingBagConfig(**GOOD, init_fn=lambda w: w.fill_(7.0)).initialize(weight)

    assert (weight == 7.0).all()


@cases(
    ("change", "parts"),
    {
        "no-name": ({"name": ""}, ["table name:", "got ''"]),
        "dot": ({"name": "a.b"}, ["letters, digits", "got 'a.b'"]),
        "slash": ({"name": "a/b"}, ["got 'a/b'"]),
        "rows": ({"num_embeddings": 0}, ["'t': num_embeddings:", "got 0"]),
        "dim": ({"embedding_dim": 0}, ["'t': embedding_dim:", "got 0"]),
        "no-features": ({"feature_names": []}, ["at least one name", "got []"]),
        "bare-text": ({"feature_names": "user"}, ["got 'user'"]),
        "twice": ({"feature_names": ["a", "a"]}, ["each once", "got ('a', 'a')"]),
        "range": ({"weight_init_min": 1.0, "weight_init_max": 0.0}, ["a range", "got 1.0..0.0"]),
        "infinite": ({"weight_init_max": float("inf")}, ["a range", "inf"]),
    },
)
def test_configs_that_cannot_be_used_are_refused(change, parts):
    with refused(InputError, *parts):
        EmbeddingBagConfig(**(GOOD | change))
