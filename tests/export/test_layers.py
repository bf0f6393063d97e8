"""A served layer of torch.nn has the module's scores, or its refusal says what to write instead.

tests/export/layers.py has the table of layers. `REFUSED` lists those that no package can hold.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from embershard._proto import predictor_pb2 as pb
from embershard.errors import ExportError
from embershard.export import export_model
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import DenseInput, SampleRequest, Schema, SparseInput
from tests.export.layers import LAYERS, REFUSED, layers_of_torch
from tests.serving.asking import outputs_of, packed_sample
from tests.serving.messages import MessagePredictor

EXPORTED = sorted(set(LAYERS) - set(REFUSED))
SHARE_EXPORTED = 0.95
SIZES = (3, 1, 4)
"""Number of examples of each request of a batch."""


class Model(nn.Module):
    """One layer over dense inputs, and the table that every package needs."""

    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        config = EmbeddingBagConfig(
            name="users", num_embeddings=5, embedding_dim=4, feature_names=["user"]
        )
        self.embeddings = EmbeddingBagCollection([config])
        self.shape, self.call, self.layer = layer.shape, layer.call, layer.make()
        for name, buffer in self.layer.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.uniform_(0.5, 1.5)

    def forward(self, dense, sparse):
        scores = self.call(self.layer, dense.reshape(-1, *self.shape)).flatten(1)
        return {"scores": scores, "user": self.embeddings(sparse)["user"]}


def schema_of(layer):
    dense = [DenseInput(f"x{place}") for place in range(math.prod(layer.shape))]
    return Schema(dense=dense, sparse=[SparseInput("user", scope="request")])


def request_of(dense):
    """One request whose examples have these dense inputs."""
    return SampleRequest(
        num_examples=len(dense),
        request_dense=np.zeros(0, np.float32),
        example_dense=dense,
        lengths=np.ones(1, np.int32),
        values=np.zeros(1, np.int64),
        weights=np.zeros(0, np.float32),
        outputs={},
    )


def served(package, parts):
    """Scores of requests that the server runs as one batch."""
    local = MessagePredictor(package, threads=1, slots=1)
    schema = pb.GetModelResponse.FromString(local.get_model()).schema
    messages = [packed_sample(request_of(part), schema).SerializeToString() for part in parts]
    answers = local.answers(messages)
    return np.concatenate([outputs_of(answer)["scores"] for answer in answers])


@pytest.mark.parametrize("name", EXPORTED)
def test_served_scores_of_a_torch_layer_are_the_modules(name, tmp_path):
    layer = LAYERS[name]
    module = Model(layer)
    package = export_model(module, schema_of(layer), tmp_path / "layer" / "1")

    dense = torch.randn(sum(SIZES), math.prod(layer.shape), generator=torch.Generator())
    module.eval()
    with torch.no_grad():
        expected = layer.call(module.layer, dense.reshape(-1, *layer.shape)).flatten(1)
    scores = served(package, np.split(dense.numpy(), np.cumsum(SIZES)[:-1]))
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_torch_layer_is_named_with_its_replacement(name, tmp_path):
    layer = LAYERS[name]
    with pytest.raises(ExportError) as refusal:
        export_model(Model(layer), schema_of(layer), tmp_path / "layer" / "1")
    message = str(refusal.value)
    assert "layers.py:" in message
    assert ": return layer(x): " in message
    for part in REFUSED[name]:
        assert part in message


def test_table_holds_every_layer_of_its_families():
    assert set(LAYERS) == layers_of_torch()


def test_at_least_95_percent_of_the_layers_are_exported():
    assert set(REFUSED) <= set(LAYERS)
    assert len(EXPORTED) >= SHARE_EXPORTED * len(layers_of_torch())
