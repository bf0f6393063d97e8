"""Tables of data_type FP16 are looked up in float32, trained, and exported."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import embershard as es
from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.modules import (
    DataType,
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingBagCollection,
    FusedEmbeddingCollection,
    PoolingType,
)
from embershard.package.reader import Package
from tests.cases import refused

FEATURES = KeyedJaggedTensor(
    ["item", "user"], torch.tensor([3, 1, 1, 0, 2]), lengths=torch.tensor([2, 0, 1, 2])
)
TYPES = [DataType.FP16, DataType.FP32]


def configs(kind, data_type, dim=4, **options):
    sizes = {"num_embeddings": 5, "embedding_dim": dim, "data_type": data_type}
    return [
        kind(name="items", feature_names=["item"], **sizes, **options),
        kind(name="users", feature_names=["user"], **sizes, **options),
    ]


@pytest.mark.parametrize("dim", [4, 3])
@pytest.mark.parametrize("pooling", PoolingType)
@pytest.mark.parametrize("build", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_pooled_vectors_are_those_of_the_rounded_weights(build, pooling, dim):
    half, full = (
        build(configs(EmbeddingBagConfig, data_type, dim, pooling=pooling)) for data_type in TYPES
    )
    full.load_state_dict(half.state_dict())

    assert {weight.dtype for weight in half.state_dict().values()} == {torch.float16}
    assert_close(half(FEATURES).values(), full(FEATURES).values(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("build", [EmbeddingCollection, FusedEmbeddingCollection])
def test_sequences_are_the_rounded_rows(build):
    half = build(configs(EmbeddingConfig, DataType.FP16))
    rows = half.embeddings["users"].weight.detach()[[0, 2]].float()

    assert_close(half(FEATURES)["user"].values().detach()[1:], rows, rtol=0, atol=0)


def test_backward_of_the_fused_kernel_trains_float16():
    half = FusedEmbeddingBagCollection(
        configs(EmbeddingBagConfig, DataType.FP16), optimizer="sgd", learning_rate=0.5
    )
    nn.init.ones_(half.embedding_bags["items"].weight)

    half(FEATURES)["item"].sum().backward()

    weight = half.embedding_bags["items"].weight
    assert weight.dtype == torch.float16
    assert weight[:, 0].tolist() == [1.0, 0.5, 1.0, 0.5, 1.0]


def test_gradients_of_plain_tables_are_float16():
    half = EmbeddingBagCollection(configs(EmbeddingBagConfig, DataType.FP16))

    half(FEATURES)["item"].sum().backward()

    gradient = half.embedding_bags["items"].weight.grad
    assert gradient.dtype == torch.float16
    assert gradient[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("kind", [FusedEmbeddingBagCollection, FusedEmbeddingCollection])
def test_a_fused_collection_of_two_data_types_is_refused(kind):
    tables = [
        configs(EmbeddingBagConfig, DataType.FP16)[0],
        configs(EmbeddingBagConfig, DataType.FP32)[1],
    ]
    with refused(InputError, "data_type", "users"):
        kind(tables)


@pytest.mark.parametrize("value", ["FP16", torch.float16])
def test_another_data_type_is_refused(value):
    with refused(InputError, "table 'items': data_type", "FP16, got"):
        configs(EmbeddingConfig, value)


class Ranker(nn.Module):
    def __init__(self, build):
        super().__init__()
        self.embeddings = build(configs(EmbeddingBagConfig, DataType.FP16))
        self.over = nn.Linear(9, 1)

    def forward(self, dense, sparse):
        pooled = self.embeddings(sparse)
        joined = torch.cat([dense, pooled["user"], pooled["item"]], dim=1)
        return self.over(joined).sigmoid().squeeze(-1)


@pytest.mark.parametrize("build", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
def test_export_stores_the_values(build, tmp_path):
    schema = es.Schema(
        dense=[es.DenseInput("price")],
        sparse=[es.SparseInput(name, ids=es.Identity(rows=5)) for name in ("user", "item")],
    )
    ranker = Ranker(build)

    es.export_model(ranker, schema, tmp_path / "1", weights="fp32")

    stored = Package.open(tmp_path / "1").read_rows("items", np.arange(5)).view(np.float32)
    weight = ranker.embeddings.embedding_bags["items"].weight
    assert weight.dtype == torch.float16
    assert np.array_equal(stored, weight.detach().float().numpy())
