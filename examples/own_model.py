"""Your own model from the schema to predictions: training, export, serving.

.venv/bin/python examples/own_model.py [REPOSITORY]
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import embershard as es
from embershard.data import Examples, JaggedColumn, batches

USERS = [f"u-{number}" for number in range(500)]
ITEMS = list(range(1000, 1300))

SCHEMA = es.Schema(
    dense=[es.DenseInput("hour", scope="request"), es.DenseInput("price")],
    sparse=[
        # Strings that are hashed, so that no list of users is kept. Sent once per request.
        es.SparseInput("user", scope="request", ids=es.Hash(buckets=1000)),
        # All unknown items share an additional row.
        es.SparseInput(
            "history",
            scope="request",
            ids=es.Vocabulary(ITEMS, unknown="oov"),
            max_ids=20,
            keep="last",
        ),
        es.SparseInput("item", ids=es.Vocabulary(ITEMS, unknown="oov")),
    ],
)


class Ranker(torch.nn.Module):
    """A model whose forward takes dense inputs and rows. torch.fx must be able to trace it."""

    def __init__(self) -> None:
        super().__init__()
        # Backward updates only the rows of the batch. torch's optimizers would read whole tables.
        self.embeddings = es.FusedEmbeddingBagCollection(
            [
                es.EmbeddingBagConfig(
                    name="users", num_embeddings=1000, embedding_dim=16, feature_names=["user"]
                ),
                es.EmbeddingBagConfig(
                    name="items",
                    num_embeddings=len(ITEMS) + 1,
                    embedding_dim=16,
                    feature_names=["item", "history"],
                    pooling=es.PoolingType.MEAN,
                ),
            ],
            optimizer="rowwise_adagrad",
            learning_rate=0.1,
        )
        self.user_side = es.MLP(in_features=1 + 2 * 16, layer_sizes=[32, 16])
        self.over = es.MLP(in_features=1 + 16 + 16, layer_sizes=[32, 1])

    def forward(self, dense: Tensor, sparse: es.KeyedJaggedTensor) -> Tensor:
        """Probabilities, float32 ``(B,)``."""
        pooled = self.embeddings(sparse)
        user = torch.cat([dense[:, :1], pooled["user"], pooled["history"]], dim=1)
        user = es.to_examples(self.user_side(user))  # A server runs this part once per request.
        x = torch.cat([dense[:, 1:], user, pooled["item"]], dim=1)
        return torch.sigmoid(self.over(x)).squeeze(1)


def examples(count: int) -> Examples:
    """Make up clicks. Users like low prices, and items whose number has their own parity."""
    random = np.random.default_rng(0)
    users = random.integers(0, len(USERS), count)
    items = random.choice(ITEMS, count)
    dense = random.standard_normal((count, 2)).astype(np.float32)
    liked = 1 / (1 + np.exp(-(2.0 * ((users + items) % 2 == 0) - 1.0 - dense[:, 1])))
    history = [random.choice(ITEMS, length).tolist() for length in random.integers(0, 5, count)]
    return Examples(
        schema=SCHEMA,
        dense=dense,  # [N, 2], columns as in the schema
        sparse={
            "user": JaggedColumn.of_lists([USERS[user] for user in users]),
            "history": JaggedColumn.of_lists(history),
            "item": JaggedColumn.of_lists(items),
        },
        labels=(random.random(count) < liked).astype(np.float32),
        request=np.arange(count),  # Each example is a request of its own.
    )


def train(model: Ranker, data: Examples) -> float:
    """Train for one epoch. Returns the mean loss of the last batches."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # Has only the MLPs' parameters.
    losses = []
    for batch in batches(data, batch_size=256, shuffle_seed=0):
        loss = torch.nn.functional.binary_cross_entropy(
            model(batch.dense, batch.sparse), batch.labels
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses[-10:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("repository", nargs="?", help="folder for the package (default: temporary)")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Ranker()
    print(f"loss {train(model, examples(20_000)):.3f}")
    with tempfile.TemporaryDirectory() as temporary:
        repository = Path(args.repository or temporary)
        names = [folder.name for folder in repository.glob("ranker/*")]
        versions = [int(name) for name in names if name.isdecimal()]
        es.export_model(
            model,
            SCHEMA,
            repository / "ranker" / str(1 + max(versions, default=0)),  # The next version.
            weights={"users": "int8", "items": "int4"},
        )
        options = es.ServerOptions(port=0)
        with (
            es.Server(repository, model="ranker", options=options) as server,
            es.Client(server.address, timeout_seconds=10) as client,
        ):
            answer = client.predict(
                "ranker",
                dense={"hour": 0.5, "price": [0.1, -1.2, 2.0]},
                sparse={
                    "user": ["u-81"],
                    "history": [1003, 1009],
                    "item": [[1101], [1205], [99]],
                },
            )
    print(f"scores {answer['score'].round(3).tolist()}, unknown ids {dict(answer.unknown_ids)}")


if __name__ == "__main__":
    main()
