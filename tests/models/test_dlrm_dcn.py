"""DLRM_DCN against an oracle by hand, its state dict, an export, and refusals."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.export import export_model
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM_DCN
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from embershard.package import DenseInput, Package, Schema, SparseInput
from tests.cases import cases, refused

TABLES = [
    EmbeddingBagConfig(name="a", num_embeddings=9, embedding_dim=4, feature_names=["item"]),
    EmbeddingBagConfig(name="b", num_embeddings=5, embedding_dim=4, feature_names=["user"]),
]


def build(**changes):
    torch.manual_seed(0)
    sizes = {
        "dense_in_features": 3,
        "dense_arch_layer_sizes": [6, 4],
        "over_arch_layer_sizes": [5, 1],
        "dcn_num_layers": 2,
        "dcn_low_rank_dim": 3,
    }
    return DLRM_DCN(EmbeddingBagCollection(TABLES), **(sizes | changes))


def logits_by_hand(model, dense, sparse):
    """Logits from the state dict, example by example."""
    state = model.state_dict()
    pooled = model.sparse_arch.embedding_bag_collection(sparse).to_dict()

    def layer(prefix, x):
        return state[f"{prefix}.weight"] @ x + state[f"{prefix}.bias"]

    rows = []
    for example in range(len(dense)):
        bottom = dense[example]
        for i in range(2):
            bottom = torch.relu(layer(f"dense_arch.model._mlp.{i}._linear", bottom))
        start = torch.cat([bottom, pooled["item"][example], pooled["user"][example]])
        x = start
        for i in range(2):
            w, v = (state[f"inter_arch.crossnet.{k}_kernels.{i}"] for k in "WV")
            x = start * (w @ (v @ x) + state[f"inter_arch.crossnet.bias.{i}"]) + x
        top = torch.relu(layer("over_arch.model.0._mlp.0._linear", x))
        rows.append(layer("over_arch.model.1", top))
    return torch.stack(rows)


@pytest.mark.parametrize("examples", [1, 7])
def test_logits_are_the_oracles(examples):
    model = build()
    generator = torch.Generator().manual_seed(examples)
    lengths = torch.randint(0, 3, (2 * examples,), generator=generator)
    rows = torch.randint(5, (int(lengths.sum()),), generator=generator)
    sparse = KeyedJaggedTensor(["user", "item"], rows, lengths=lengths)
    dense = torch.randn(examples, 3, generator=generator)

    assert_close(model(dense, sparse), logits_by_hand(model, dense, sparse))


def test_the_state_dict_has_torchrecs_names():
    cross = [name for name in build().state_dict() if "inter_arch" in name]
    assert cross == [
        f"inter_arch.crossnet.{kind}.{layer}"
        for kind in ("W_kernels", "V_kernels", "bias")
        for layer in (0, 1)
    ]


def test_it_exports_with_samples_that_have_the_modules_scores(tmp_path):
    model = build()
    schema = Schema(
        dense=[DenseInput(name) for name in "xyz"],
        sparse=[SparseInput("user"), SparseInput("item")],
    )
    package = Package.open(export_model(model, schema, tmp_path / "m" / "1"))
    sample = package.samples()[-1]

    sparse = KeyedJaggedTensor(
        ["user", "item"], torch.tensor(sample.values), lengths=torch.tensor(sample.lengths)
    )
    scores = torch.sigmoid(model(torch.tensor(sample.example_dense), sparse)).squeeze(1)

    # The package has int8 rows: scores differ by the error of their quantization.
    np.testing.assert_allclose(sample.outputs["score"], scores.detach().numpy(), atol=0.02)


@cases(
    ("changes", "message"),
    {
        "width": ({"dense_arch_layer_sizes": [6, 5]}, "dense_arch_layer_sizes"),
        "no-layers": ({"dense_arch_layer_sizes": []}, "dense_arch_layer_sizes"),
        "logits": ({"over_arch_layer_sizes": [5, 2]}, "over_arch_layer_sizes"),
        "no-over": ({"over_arch_layer_sizes": []}, "over_arch_layer_sizes"),
        "no-rank": ({"dcn_low_rank_dim": 0}, "low_rank"),
        "no-cross": ({"dcn_num_layers": 0}, "num_layers"),
    },
)
def test_sizes_that_do_not_fit_are_refused(changes, message):
    with refused(InputError, message):
        build(**changes)
