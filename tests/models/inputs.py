"""Tables, a batch and plain computations of layers, for tests of models."""

import torch

from embershard.jagged import KeyedJaggedTensor
from embershard.models import MODEL_CONFIGS, build_model
from embershard.modules import EmbeddingBagConfig, PoolingType
from embershard.package import DenseInput, Schema, SparseInput

SCHEMA = Schema(
    dense=[DenseInput("age", scope="request"), DenseInput("price")],
    sparse=[
        SparseInput("user", scope="request"),
        SparseInput("history", scope="request", max_ids=4, keep="last"),
        SparseInput("item"),
    ],
)
LISTS = {
    "user": [[0], [1], [0]],
    "history": [[2, 0, 3], [], [4, 1, 1, 0]],
    "item": [[1], [3], [2]],
}
TABLES = [
    EmbeddingBagConfig(name="user", num_embeddings=2, embedding_dim=4, feature_names=["user"]),
    EmbeddingBagConfig(
        name="history",
        num_embeddings=5,
        embedding_dim=4,
        feature_names=["history"],
        pooling=PoolingType.MEAN,
    ),
    EmbeddingBagConfig(name="item", num_embeddings=5, embedding_dim=4, feature_names=["item"]),
]
DENSE = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]])


def sparse(inputs=LISTS):
    return KeyedJaggedTensor(
        keys=list(inputs),
        values=torch.tensor([row for lists in inputs.values() for rows in lists for row in rows]),
        lengths=torch.tensor([len(rows) for lists in inputs.values() for rows in lists]),
    )


def arguments_of(name, tasks=("score",), **section):
    """Arguments of ``build_model`` for the settings of a section ``[model]``."""
    config = MODEL_CONFIGS[name].model_validate({"name": name, "embedding_dim": 4, **section})
    return config.arguments(TABLES, schema=SCHEMA, fused=None, tasks=dict.fromkeys(tasks, "bce"))


def model_of(name, tasks=("score",), **section):
    """The model of a section ``[model]``. All weights are random, also biases and those of
    norms."""
    torch.manual_seed(1)
    model = build_model(name, arguments_of(name, tasks, **section))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def pooled(model, example, suffix=""):
    """Vectors of an example by the tables' definition: user, mean of history, item."""
    bags = model.embedding_bag_collection.embedding_bags
    vectors = []
    for table in TABLES:
        if f"{table.name}{suffix}" in bags:
            weight = bags[f"{table.name}{suffix}"].weight
            rows = LISTS[table.name][example]
            total = sum((weight[row] for row in rows), torch.zeros(weight.shape[1]))
            vectors.append(total / max(1, len(rows)) if table.name == "history" else total)
    return vectors


def linear(state, prefix, x):
    """Applies a linear layer of a state dict."""
    y = state[f"{prefix}.weight"] @ x
    return y + state[f"{prefix}.bias"] if f"{prefix}.bias" in state else y


def perceptrons(state, prefix, x, count, *, activate_last=False):
    """Applies ``count`` layers of an MLP, with ReLU between them."""
    for layer in range(count):
        x = linear(state, f"{prefix}._mlp.{layer}._linear", x)
        x = torch.relu(x) if layer < count - 1 or activate_last else x
    return x


def normalized(state, prefix, x):
    """Applies a LayerNorm of a state dict."""
    centred = x - x.mean()
    scaled = centred / (centred.square().mean() + 1e-5).sqrt()
    return scaled * state[f"{prefix}.weight"] + state[f"{prefix}.bias"]
