"""A flat column of strings, from training to serving: one id an example, its own row."""

import numpy as np
import pytest
import torch

from embershard.data import Examples, JaggedColumn, batches
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import Schema, SparseInput, Vocabulary
from embershard.serving import LocalPredictor

USERS = ["u000001", "u000002", "u000003", "u000004"]
SEEN = ["u000003", "u000001", "u000003"]
ROWS = [2, 0, 2]
OOV = 4
SCHEMA = Schema(sparse=[SparseInput("user", ids=Vocabulary(USERS, unknown="oov"))])


class Sums(torch.nn.Module):
    """Each user's vector, summed."""

    def __init__(self):
        super().__init__()
        table = EmbeddingBagConfig(
            name="users", num_embeddings=OOV + 1, embedding_dim=4, feature_names=["user"]
        )
        self.embeddings = EmbeddingBagCollection([table])

    def forward(self, dense, sparse):
        return {"score": self.embeddings(sparse)["user"].sum(1)}


@pytest.fixture(scope="module")
def trained():
    """The model, and its table before training."""
    torch.manual_seed(0)
    model = Sums()
    before = model.embeddings.embedding_bags["users"].weight.detach().clone()
    examples = Examples(
        schema=SCHEMA,
        dense=np.empty((3, 0), np.float32),
        sparse={"user": JaggedColumn.of_lists(SEEN)},
        labels=np.array([1, 0, 1], np.float32),
        request=np.arange(3),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for batch in batches(examples, batch_size=3):
        assert batch.sparse.values().tolist() == ROWS
        scores = model(batch.dense, batch.sparse)["score"]
        torch.nn.functional.binary_cross_entropy_with_logits(scores, batch.labels).backward()
        optimizer.step()
    return model, before


def test_training_changes_the_rows_of_whole_strings(trained):
    model, before = trained
    table = model.embeddings.embedding_bags["users"].weight.detach()
    assert (table != before).any(1).tolist() == [True, False, True, False, False]


def test_serving_looks_up_the_rows_that_were_trained(trained, tmp_path):
    model, _ = trained
    out = export_model(model, SCHEMA, tmp_path / "ranker" / "1", weights="fp32")
    local = LocalPredictor(out)
    [answer] = local.predict_merged([local.request(sparse={"user": [*SEEN, "u"]})])
    table = model.embeddings.embedding_bags["users"].weight.detach()
    np.testing.assert_allclose(
        answer.outputs["score"], table[[*ROWS, OOV]].sum(1).numpy(), rtol=0, atol=1e-6
    )
    assert dict(answer.unknown_ids) == {"user": 1}
