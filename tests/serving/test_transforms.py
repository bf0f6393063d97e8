"""Clients send raw values; a package scores them as training scored transformed ones."""

import numpy as np
import torch

from embershard.data import Examples, JaggedColumn, batches, sample_requests
from embershard.errors import InternalError
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import (
    Bucketize,
    Clip,
    DenseInput,
    Identity,
    Log1p,
    Schema,
    SparseInput,
    Standardize,
)
from embershard.serving import LocalPredictor
from tests.cases import cases

EXAMPLES = 37


class Seen(torch.nn.Module):
    """Gives the dense values that it is given."""

    def __init__(self):
        super().__init__()
        config = EmbeddingBagConfig(
            name="items", num_embeddings=9, embedding_dim=4, feature_names=["item"]
        )
        self.embeddings = EmbeddingBagCollection([config])

    def forward(self, dense, sparse):
        return {"seen": dense + 0 * self.embeddings(sparse)["item"].sum(1, keepdim=True)}


def examples(transforms):
    random = np.random.default_rng(0)
    request = np.sort(random.integers(0, 5, EXAMPLES))
    dense = random.lognormal(0, 3, (EXAMPLES, 2)).astype(np.float32)
    dense[:, 0] = dense[request, 0]
    return Examples(
        schema=Schema(
            dense=[
                DenseInput("age", scope="request", transforms=transforms),
                DenseInput("price", transforms=transforms),
            ],
            sparse=[SparseInput("item", ids=Identity(9))],
        ),
        dense=dense,
        sparse={"item": JaggedColumn.of_lists(random.integers(0, 9, EXAMPLES))},
        labels=np.zeros(EXAMPLES, np.float32),
        request=request,
    )


# torch's log1p may give another last bit at another place of a vector; all else is equal.
@cases(
    ("transforms", "units"),
    {
        "log1p": ((Log1p(),), 1),
        "clip": ((Clip(0.5, 3),), 0),
        "standardize": ((Standardize(2.5, 0.3),), 0),
        "bucketize": ((Bucketize([0.1, 1, 10]),), 0),
        "several": ((Clip(0, 50), Log1p(), Standardize(1, 2)), 2),
    },
)
def test_served_values_are_those_of_training(transforms, units, tmp_path):
    data, model = examples(transforms), Seen()
    out = export_model(model, data.schema, tmp_path / "m" / "1", samples=sample_requests(data, 3))

    requests = sample_requests(data, 5)
    answers = LocalPredictor(out).predict_merged(requests)

    (batch,) = batches(data, batch_size=EXAMPLES)
    trained = model(batch.dense, batch.sparse)["seen"].detach().numpy()
    served = np.concatenate([answer.outputs["seen"] for answer in answers])
    assert not np.array_equal(trained, data.dense)
    np.testing.assert_array_max_ulp(served, trained, maxulp=units)


def test_a_value_without_a_logarithm_fails_its_request_only(tmp_path):
    data = examples((Log1p(),))
    local = LocalPredictor(export_model(Seen(), data.schema, tmp_path / "m" / "1"))
    good, bad = (
        local.request(dense={"age": 1.0, "price": [price]}, sparse={"item": [3]})
        for price in (2.0, -1.0)
    )
    answer, failure = local.predict_merged([good, bad])
    assert answer.outputs["seen"].shape == (1, 2)
    assert type(failure) is InternalError
    assert "output 'seen' at example 0" in str(failure)
