"""Small modules with schemas, for the tests of this folder."""

from functools import partial

import numpy as np
import torch
from torch import nn

from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType, to_examples
from embershard.package import DenseInput, Identity, SampleRequest, Schema, SparseInput

TABLES = [
    EmbeddingBagConfig(
        name="items",
        num_embeddings=9,
        embedding_dim=4,
        feature_names=["item", "history"],
        pooling=PoolingType.MEAN,
    ),
    EmbeddingBagConfig(name="users", num_embeddings=5, embedding_dim=4, feature_names=["user"]),
]

SCHEMA = Schema(
    dense=[DenseInput("age", scope="request"), DenseInput("price"), DenseInput("likes")],
    sparse=[
        SparseInput("user", scope="request"),
        SparseInput("item", ids=Identity(8, unknown="oov")),
        SparseInput(
            "history", scope="request", ids=Identity(8, unknown="oov"), max_ids=3, keep="last"
        ),
    ],
)
"""Dense and sparse inputs of both scopes. A request's pooled vector has the user in columns 0..4
and the history in 4..8; an example's has the item."""


REQUEST = SampleRequest(
    num_examples=2,
    request_dense=np.array([0.5], np.float32),
    example_dense=np.array([[1, -1], [0.25, 2]], np.float32),
    lengths=np.array([1, 2, 0, 4], np.int32),  # The user, the items of two examples, the history.
    # 99 is unknown. The history has one id more than max_ids.
    values=np.array([4, 7, 99, 1, 2, 3, 4], np.int64),
    weights=np.zeros(0, np.float32),
    outputs={},
)
"""One request of two examples for SCHEMA. Its history is cut by `keep`."""


def collection(cls=EmbeddingBagCollection, tables=TABLES, **options):
    torch.manual_seed(0)
    return cls(tables, **options)


def dlrm(cls=EmbeddingBagCollection):
    return DLRM(
        embedding_bag_collection=collection(cls),
        dense_in_features=3,
        dense_arch_layer_sizes=[6, 4],
        over_arch_layer_sizes=[5, 3, 1],
    )


class Ranker(nn.Module):
    """A ranker whose user tower is marked with `to_examples`."""

    def __init__(self, cls=EmbeddingBagCollection):
        super().__init__()
        self.embeddings = collection(cls)
        self.tower = nn.Linear(1 + 8, 3)
        self.over = nn.Linear(3 + 2 + 4, 1)

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        pooled = self.embeddings(sparse)
        user = torch.cat([dense[:, :1], pooled["user"], pooled["history"]], dim=1)
        user = to_examples(torch.relu(self.tower(user)))
        item = torch.cat([dense[:, 1:], pooled["item"]], dim=1)
        return torch.sigmoid(self.over(torch.cat([user, item], dim=1))).squeeze(1)


class Holder(nn.Module):
    """Wraps a model, so that the names of its weights begin with ``model.``."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, dense: torch.Tensor, sparse: KeyedJaggedTensor) -> torch.Tensor:
        return self.model(dense, sparse)


def make_ranker_held():
    return Holder(Ranker()), SCHEMA


def make_ranker():
    """A factory for `export_checkpoint`."""
    torch.manual_seed(1)  # These are not the weights that a test saves.
    ranker = Ranker()
    with torch.no_grad():
        for parameter in ranker.parameters():
            parameter.add_(1)
    return ranker, SCHEMA


def make_ranker_on_meta():
    """A factory of a ranker whose tables are on the meta device."""
    return Ranker(partial(EmbeddingBagCollection, device="meta")), SCHEMA


def make_all_on_meta():
    with torch.device("meta"):
        return Ranker(), SCHEMA


def make_nothing():
    return Ranker()


def make_trouble():
    raise RuntimeError("the disk is full")


def make_exit():
    raise SystemExit(7)


NOT_CALLABLE = 3
