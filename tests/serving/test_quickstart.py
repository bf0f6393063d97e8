"""A model of one's own, from a class to scores, with nothing but the root's names."""

import numpy as np
import pytest
import torch

import embershard as es
from embershard.serving import ServerOptions

ITEM_IDS = [101, 205, 7, 3, 9, 12]


class Ranker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = es.EmbeddingBagCollection(
            tables=[
                es.EmbeddingBagConfig(
                    name="users", num_embeddings=1000, embedding_dim=8, feature_names=["user"]
                ),
                es.EmbeddingBagConfig(
                    name="items",
                    num_embeddings=len(ITEM_IDS),
                    embedding_dim=8,
                    feature_names=["item", "history"],
                    pooling=es.PoolingType.MEAN,
                ),
            ]
        )
        self.over = es.MLP(in_features=13 + 3 * 8, layer_sizes=[16, 1])

    def forward(self, dense: torch.Tensor, sparse: es.KeyedJaggedTensor) -> torch.Tensor:
        pooled = self.embeddings(sparse)
        user = es.to_examples(torch.cat([pooled["user"], pooled["history"]], dim=1))
        joined = torch.cat([dense, user, pooled["item"]], dim=1)
        return torch.sigmoid(self.over(joined)).squeeze(1)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    torch.manual_seed(0)
    items = es.Vocabulary(ITEM_IDS, unknown="zero")
    schema = es.Schema(
        dense=[es.DenseInput(f"d{i}") for i in range(13)],
        sparse=[
            es.SparseInput("user", scope="request", ids=es.Hash(buckets=1000)),
            es.SparseInput("history", scope="request", ids=items, max_ids=200, keep="last"),
            es.SparseInput("item", ids=es.Vocabulary(ITEM_IDS)),
        ],
    )
    repository = tmp_path_factory.mktemp("repository")
    es.export_model(
        Ranker(), schema, repository / "ranker/1", weights={"users": "int8", "items": "int4"}
    )
    options = ServerOptions(port=0, threads=1)
    with (
        es.Server(repository, options=options) as server,
        es.Client(server.address, timeout_seconds=60) as connected,
    ):
        yield connected


@pytest.mark.parametrize(
    "form",
    [np.asarray, torch.as_tensor, lambda dense: dense.tolist()],
    ids=["numpy", "torch", "lists"],
)
def test_three_candidates_are_scored(client, form):
    dense = form(np.linspace(-1, 1, 39, dtype=np.float32).reshape(3, 13))
    sparse = {"user": ["u-81f3"], "history": [[3, 9, 12]], "item": [[101], [205], [7]]}
    scores = client.predict("ranker", dense=dense, sparse=sparse)["score"]
    assert (scores.dtype, scores.shape) == (np.float32, (3,))
    assert ((scores > 0) & (scores < 1)).all()
    assert len(set(scores.tolist())) == 3
