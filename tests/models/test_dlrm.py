"""DLRM against an oracle by hand, its state dict, its trace, and refusals."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.models import DLRM, DLRMTrain, InteractionArch, LogitModel, OverArch, Score
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FusedEmbeddingBagCollection,
    PoolingType,
)
from tests.cases import cases, refused

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


def build(cls=EmbeddingBagCollection, **changes):
    torch.manual_seed(0)
    sizes = {
        "dense_in_features": 3,
        "dense_arch_layer_sizes": [6, 4],
        "over_arch_layer_sizes": [5, 3, 1],
    }
    return DLRM(embedding_bag_collection=cls(TABLES), **(sizes | changes))


def inputs(examples):
    generator = torch.Generator().manual_seed(examples)
    lengths = torch.randint(0, 3, (3 * examples,), generator=generator)
    dense = torch.randn(examples, 3, generator=generator)
    rows = torch.randint(-1, 5, (int(lengths.sum()),), generator=generator)
    return dense, KeyedJaggedTensor(["user", "item", "history"], rows, lengths=lengths)


def layers_by_hand(state, prefixes, x):
    for prefix in prefixes:
        x = torch.relu(x @ state[f"{prefix}.weight"].T + state[f"{prefix}.bias"])
    return x


def logits_by_hand(model, dense, sparse):
    """Logits from the state dict and the pooled embeddings, example by example."""
    state = model.state_dict()
    pooled = model.sparse_arch.embedding_bag_collection(sparse).to_dict()
    bottom = layers_by_hand(state, [f"dense_arch.model._mlp.{i}._linear" for i in range(2)], dense)
    rows = []
    for example in range(len(dense)):
        vectors = [bottom[example]] + [pooled[f][example] for f in ("item", "history", "user")]
        dots = [first @ second for first, second in itertools.combinations(vectors, 2)]
        rows.append(torch.cat([bottom[example], torch.stack(dots)]))
    top = layers_by_hand(
        state, [f"over_arch.model.0._mlp.{i}._linear" for i in range(2)], torch.stack(rows)
    )
    return top @ state["over_arch.model.1.weight"].T + state["over_arch.model.1.bias"]


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
@pytest.mark.parametrize("examples", [1, 7])
def test_logits_are_the_oracles(cls, examples):
    model = build(cls)
    dense, sparse = inputs(examples)

    logits = model(dense_features=dense, sparse_features=sparse)

    assert logits.shape == (examples, 1)
    assert_close(logits, logits_by_hand(model, dense, sparse))


def test_interactions_of_known_vectors():
    dense = torch.tensor([[1.0, 2.0]])
    sparse = torch.tensor([[[3.0, 0.0], [1.0, 1.0]]])

    # The dense vector, then the products dense . first, dense . second and first . second.
    assert InteractionArch(num_sparse_features=2)(dense, sparse).tolist() == [[1, 2, 3, 3, 3]]


def test_state_dict_keys_are_torchrecs():
    def layer(name):
        return [f"{name}.weight", f"{name}.bias"]

    assert list(build().state_dict()) == [
        "sparse_arch.embedding_bag_collection.embedding_bags.items.weight",
        "sparse_arch.embedding_bag_collection.embedding_bags.users.weight",
        *layer("dense_arch.model._mlp.0._linear"),
        *layer("dense_arch.model._mlp.1._linear"),
        *layer("over_arch.model.0._mlp.0._linear"),
        *layer("over_arch.model.0._mlp.1._linear"),
        *layer("over_arch.model.1"),
    ]


def test_the_training_model_returns_the_mean_cross_entropy():
    model = build()
    dense, sparse = inputs(7)
    labels = torch.tensor([1, 0, 0, 1, 1, 0, 1])
    batch = SimpleNamespace(dense_features=dense, sparse_features=sparse, labels=labels)
    loss, (reported, logits, returned_labels) = DLRMTrain(model)(batch)
    expected = logits_by_hand(model, dense, sparse).squeeze(1).double()
    p = 1 / (1 + torch.exp(-expected))
    by_hand = -torch.where(labels == 1, p, 1 - p).log().mean()
    assert_close(loss.double(), by_hand, rtol=1e-5, atol=1e-6)
    assert_close(logits.double(), expected, rtol=1e-5, atol=1e-6)
    assert (reported.item(), returned_labels.tolist()) == (loss.item(), labels.tolist())
    assert (reported.requires_grad, logits.requires_grad) == (False, False)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.over_arch.parameters())


def test_sparse_features_are_in_the_order_of_the_tables():
    assert build().sparse_arch.sparse_feature_names == ["item", "history", "user"]


def test_score_is_the_sigmoid_of_the_logit_of_each_example():
    model = build()
    dense, sparse = inputs(4)
    logits = model(dense, sparse)

    scores = Score(model)(dense, sparse)

    assert isinstance(model, LogitModel)
    assert_close(scores, 1 / (1 + torch.exp(-logits[:, 0])))


class EmbeddingsAsLeaves(torch.fx.Tracer):
    def is_leaf_module(self, module, qualified_name):
        leaves = (EmbeddingBagCollection, FusedEmbeddingBagCollection)
        return isinstance(module, leaves) or super().is_leaf_module(module, qualified_name)


def trace(model):
    return torch.fx.GraphModule(model, EmbeddingsAsLeaves().trace(model))


@pytest.mark.parametrize("cls", [EmbeddingBagCollection, FusedEmbeddingBagCollection])
@pytest.mark.parametrize("examples", [1, 3, 7])
def test_a_trace_with_embeddings_as_leaves_serves_any_batch(cls, examples):
    model = Score(build(cls))
    dense, sparse = inputs(examples)

    assert_close(trace(model)(dense, sparse), model(dense, sparse), rtol=0, atol=0)


# Served programs are TorchScript, which torch calls deprecated. The other warning is about the
# source of torch.fx.GraphModule.
@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.filterwarnings("ignore:The TorchScript type system doesn't support:UserWarning")
def test_the_trace_without_embeddings_scripts_for_any_batch():
    model = Score(build())
    traced = trace(model)
    (embeddings,) = [n for n in traced.graph.nodes if n.op == "call_module" and "bag" in n.target]
    (values,) = [n for n in traced.graph.nodes if n.op == "call_method" and n.target == "values"]
    with traced.graph.inserting_before(embeddings):
        pooled = traced.graph.placeholder("pooled")
    values.replace_all_uses_with(pooled)
    traced.graph.erase_node(values)
    sparse_input = embeddings.args[0]
    traced.graph.erase_node(embeddings)
    traced.graph.erase_node(sparse_input)
    for node in traced.graph.nodes:
        node.type = None  # TorchScript cannot resolve postponed annotations, which are text.
    traced.delete_all_unused_submodules()
    traced.recompile()

    scripted = torch.jit.script(traced)

    for examples in (1, 3, 7):
        dense, sparse = inputs(examples)
        pooled = model.model.sparse_arch.embedding_bag_collection(sparse).values()
        assert_close(scripted(dense, pooled), model(dense, sparse))


@pytest.mark.needs_gpu
def test_training_on_cuda_is_training_on_cpu():
    losses = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        tables = FusedEmbeddingBagCollection(TABLES, learning_rate=0.1, device=device)
        model = DLRM(tables, 3, [6, 4], [5, 3, 1], dense_device=device)
        model.load_state_dict(build().state_dict())
        dense, sparse = inputs(7)
        dense, sparse = dense.to(device), sparse.to(torch.device(device))
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        losses[device] = []
        for _ in range(4):
            loss = torch.nn.functional.softplus(model(dense, sparse)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())

    assert losses["cpu"][-1] < losses["cpu"][0]
    assert losses["cuda"] == pytest.approx(losses["cpu"], abs=1e-5)


@cases(
    ("changes", "parts"),
    {
        "dense-width-is-not-the-tables": (
            {"dense_arch_layer_sizes": [6, 5]},
            ["dense_arch_layer_sizes", "got [6, 5]"],
        ),
        "no-dense-arch": ({"dense_arch_layer_sizes": []}, ["last to be 4", "got []"]),
        "two-logits": (
            {"over_arch_layer_sizes": [5, 2]},
            ["over_arch_layer_sizes", "got [5, 2]"],
        ),
        "one-over-layer": ({"over_arch_layer_sizes": [1]}, ["at least two layers", "got [1]"]),
    },
)
def test_sizes_that_do_not_fit_are_refused(changes, parts):
    with refused(InputError, *parts):
        build(**changes)


def test_tables_of_two_widths_are_refused():
    wide = EmbeddingBagConfig(name="w", num_embeddings=2, embedding_dim=8, feature_names=["f"])

    with refused(InputError, "one embedding_dim", "got {'users': 4, 'w': 8}"):
        DLRM(EmbeddingBagCollection([TABLES[1], wide]), 3, [4], [2, 1])


def test_gradients_of_interactions_equal_finite_differences():
    torch.manual_seed(0)
    dense = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    sparse = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    arch = InteractionArch(num_sparse_features=4)
    assert torch.autograd.gradcheck(arch, (dense, sparse))
    assert torch.autograd.gradgradcheck(arch, (dense, sparse))


def test_interactions_among_nothing_are_refused():
    with refused(InputError, "at least 1", "got 0"):
        InteractionArch(0)


def test_an_over_arch_of_several_outputs_stands_alone():
    assert OverArch(6, [5, 2])(torch.zeros(3, 6)).shape == (3, 2)
