"""Custom models for tests of ``model.class``."""

import torch
from torch import nn

import embershard as es
from embershard.models.base import LogitModel


class Ranker(nn.Module):
    """Returns logits ``(B,)`` for one task; ``(B, T)`` for several."""

    def __init__(
        self,
        embedding_bag_collection,
        hidden: tuple[int, ...],
        dense_in_features,
        tasks,
        activation: str = "relu",
    ):
        super().__init__()
        assert isinstance(hidden, tuple)
        self.tables = embedding_bag_collection
        self.act = {"relu": nn.ReLU, "tanh": nn.Tanh}[activation]()
        columns = sum(
            embedding_bag_config.embedding_dim * len(embedding_bag_config.feature_names)
            for embedding_bag_config in embedding_bag_collection.embedding_bag_configs()
        )
        self.inner = nn.Linear(dense_in_features + columns, hidden[0])
        self.over = nn.Linear(hidden[0], len(tasks))
        self.is_flat = len(tasks) == 1

    def forward(self, dense, sparse):
        pooled = self.tables(sparse).values()
        logits = self.over(self.act(self.inner(torch.cat([dense, pooled], dim=1))))
        return logits.squeeze(1) if self.is_flat else logits


class Named(LogitModel):
    """A `LogitModel` that takes the schema."""

    def __init__(self, embedding_bag_collection, schema: es.Schema):
        super().__init__()
        self.tables = embedding_bag_collection
        self.over = nn.Linear(len(schema.dense) + 4 * len(schema.sparse), 1)

    def forward(self, dense, sparse):
        return self.over(torch.cat([dense, self.tables(sparse).values()], dim=1))


class OfWidth(Ranker):
    """Takes the width of tables as a parameter."""

    def __init__(self, embedding_bag_collection, dense_in_features, tasks, embedding_dim=99):
        [width] = {
            embedding_bag_config.embedding_dim
            for embedding_bag_config in embedding_bag_collection.embedding_bag_configs()
        }
        assert embedding_dim == width
        super().__init__(embedding_bag_collection, (4,), dense_in_features, tasks)


class HalfDead(Ranker):
    """The logit of the last task is 0 for each example."""

    def forward(self, dense, sparse):
        logits = super().forward(dense, sparse)
        return torch.cat([logits[:, :-1], logits[:, -1:] * 0], dim=1)


class NoTables(nn.Module):
    def __init__(self, embedding_bag_collection):
        super().__init__()

    def forward(self, dense, sparse):
        return dense.sum(1)


class Wide(Ranker):
    """Returns one logit too many."""

    def __init__(self, embedding_bag_collection, dense_in_features):
        super().__init__(embedding_bag_collection, (4,), dense_in_features, {"a": 0, "b": 0})


class Failing(nn.Module):
    def __init__(self, embedding_bag_collection):
        raise RuntimeError("no such thing")

    def forward(self, dense, sparse):
        return dense


class OneInput(nn.Module):
    def __init__(self, embedding_bag_collection):
        super().__init__()

    def forward(self, dense):
        return dense


class NoCollection(nn.Module):
    def forward(self, dense, sparse):
        return dense
