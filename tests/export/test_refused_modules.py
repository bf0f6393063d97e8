"""Modules that cannot be exported are refused, and the message names the line of the cause."""

import pytest
import torch
from torch import nn

from embershard.errors import ExportError
from embershard.export.program_builder import build_program
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    FeatureProcessedEmbeddingBagCollection,
    PositionWeightedModuleCollection,
    to_examples,
)
from tests.cases import cases
from tests.export.expanding import Forward
from tests.export.models import SCHEMA, collection

HERE = r"test_refused_modules\.py:\d+: "


def refusal_of(forward, schema=SCHEMA, **submodules):
    """The message of the refusal. Checks that the module stays in training mode."""
    module = Forward(forward, **({"embeddings": collection()} | submodules)).train()
    with pytest.raises(ExportError) as refusal:
        build_program(module, schema, seed=0)
    assert module.training
    return str(refusal.value)


def assert_refused(forward, *parts, **submodules):
    message = refusal_of(forward, **submodules)
    for part in ("test_refused_modules.py:", *parts):
        assert part in message


def branch(m, d, s):
    if d.sum() > 0:
        return d.sum(1)
    return m.embeddings(s)["user"].sum(1)


def loop(m, d, s):
    return sum(row.sum() for row in m.embeddings(s)["user"])


def number(m, d, s):
    return d.sum(1) + float(m.embeddings(s)["user"][0, 0])


def test_position_weights_are_refused_with_the_module():
    table = EmbeddingBagConfig(name="t", num_embeddings=4, embedding_dim=4, feature_names=["user"])
    bags = EmbeddingBagCollection([table], is_weighted=True)
    weights = PositionWeightedModuleCollection(dict.fromkeys(table.feature_names, 3))
    processed = FeatureProcessedEmbeddingBagCollection(bags, weights)
    message = refusal_of(lambda m, d, s: m.fp(s)["user"].sum(1), fp=processed)
    assert message == (
        "fp: expected embedding collections without feature processors, got a "
        "FeatureProcessedEmbeddingBagCollection; packages have no position weights"
    )


@cases(
    ("forward", "line"),
    {
        "a-branch": (branch, "if d.sum() > 0:"),
        "a-loop": (loop, "for row in m.embeddings"),
        "a-number": (number, "float(m.embeddings"),
        "len": (lambda m, d, s: d / len(d), "d / len(d)"),
        "absent": (lambda m, d, s: m.absent(d), "m.absent(d)"),
    },
)
def test_what_cannot_be_traced_is_refused(forward, line):
    assert_refused(forward, line, "cannot be traced")


@cases(
    ("forward", "reason"),
    {
        "sparse-read": (
            lambda m, d, s: s["user"].values().sum() + m.embeddings(s)["user"],
            "expected forward to use its sparse input only in calls of embedding modules",
        ),
        "sparse-permuted": (
            lambda m, d, s: m.embeddings(s.permute([0, 1, 2])).values(),
            "got its permute(); write self.<collection>(sparse)",
        ),
        "sparse-split": (
            lambda m, d, s: m.embeddings(s.split([2, 1])[0]).values(),
            "got its split(); write self.<collection>(sparse)",
        ),
        "looked-up-twice": (
            lambda m, d, s: m.embeddings(m.embeddings(s)["user"]).values(),
            "expected an embedding module to get forward's sparse input",
        ),
        "no-such-key": (
            lambda m, d, s: m.embeddings(s)["usr"],
            "expected one of item, history, user, got 'usr'",
        ),
        "keyed-tensor-as-tensor": (
            lambda m, d, s: torch.cat([d, m.embeddings(s)], 1),
            "expected a tensor, got a KeyedTensor or a list",
        ),
        "keyed-tensor-asked": (
            lambda m, d, s: d * m.embeddings(s).length_per_key()[0],
            "expected pooled['<key>'], pooled.values() or pooled.to_dict()",
        ),
        "no-such-column": (
            lambda m, d, s: d[:, 5] + m.embeddings(s)["user"][:, 0],
            "expected columns of the 3 dense inputs, got 5",
        ),
        "no-columns": (
            lambda m, d, s: d[:, 2:2] + m.embeddings(s)["user"][:, :1],
            "expected columns of the 3 dense inputs, got slice(2, 2, None)",
        ),
        "in-place-method": (
            lambda m, d, s: m.embeddings(s)["user"].add_(1).sum(1),
            "writes into its operand",
        ),
        "in-place-function": (
            lambda m, d, s: torch.relu_(m.embeddings(s)["user"]),
            "writes into its operand",
        ),
        "out": (
            lambda m, d, s: torch.abs(d, out=m.embeddings(s)["user"]),
            "writes into its operand",
        ),
        "a-size-marked": (
            lambda m, d, s: to_examples(m.embeddings(s)["user"].shape[0]),
            "expected a tensor as argument of to_examples, got a size",
        ),
        "examples-marked": (
            lambda m, d, s: to_examples((p := m.embeddings(s))["item"]) + p["user"],
            "request-scoped inputs only, got one that has a row for each example already",
        ),
        "mixed-marked": (
            lambda m, d, s: to_examples((p := m.embeddings(s))["item"] * p["user"]),
            "request-scoped inputs only, got one that has a row for each example already",
        ),
        "marked-again": (
            lambda m, d, s: to_examples(to_examples(m.embeddings(s)["user"])) * d[:, 1:2],
            "request-scoped inputs only, got one that has a row for each example already",
        ),
    },
)
def test_what_cannot_be_split_is_refused(forward, reason):
    assert_refused(forward, "cannot be exported", reason)


@cases(
    "size",
    {
        "shape": lambda x: x.shape[0],
        "size": lambda x: x.size(0),
        "size-by-name": lambda x: x.size(dim=0),
        "all-sizes": lambda x: x.size()[0],
        "part-of-the-shape": lambda x: x.shape[:1][0],
        "computed": lambda x: x.shape[0] * 2 // 2,
        "numel": lambda x: x.numel() // x.shape[1],
    },
)
def test_a_size_of_requests_with_values_of_examples_is_refused(size):
    def forward(m, d, s):
        pooled = m.embeddings(s)
        mixed = pooled["item"].reshape(size(pooled["user"]), 2, 2)
        return mixed.sum((1, 2)) + to_examples(pooled["user"]).sum(1)

    assert_refused(forward, "it combines a size of request-scoped values", 'pooled["item"].reshape')


ACROSS_ROWS = {
    "mean": lambda m, d, s: m.embeddings(s)["item"] - d[:, 1:].mean(0).sum(),
    "softmax": lambda m, d, s: torch.softmax(m.embeddings(s)["item"], dim=0),
    "cumsum": lambda m, d, s: m.embeddings(s)["item"].cumsum(0),
    "flip": lambda m, d, s: m.embeddings(s)["user"].flip(0),
    "size": lambda m, d, s: m.embeddings(s)["item"] / d.shape[0],
    "negative-size": lambda m, d, s: m.embeddings(s)["item"] / d.size(-2),
    "transposed": lambda m, d, s: (p := m.embeddings(s)["item"]) @ p.t() @ p,
    "gram": lambda m, d, s: (p := m.embeddings(s)["item"]) @ (p.transpose(0, 1) @ p),
    "first-row": lambda m, d, s: m.embeddings(s)["item"] * d[0, 1],
    "arange": lambda m, d, s: (
        m.embeddings(s)["user"].sum(1) * torch.arange(d.shape[0], device=d.device)
    ),
    "marked-first": lambda m, d, s: to_examples((u := m.embeddings(s)["user"]) - u.mean(0)),
}


@pytest.mark.parametrize("name", ACROSS_ROWS)
def test_computing_across_rows_is_refused(name):
    assert_refused(ACROSS_ROWS[name], "depend on that example only", "output 'score'")


def test_computing_across_rows_is_refused_at_its_first_line():
    def forward(m, d, s):
        scaled = m.embeddings(s)["item"] * 2
        centred = scaled - scaled.mean(dim=0, keepdim=True)
        return torch.sigmoid(centred).sum(1)

    assert_refused(forward, "centred = scaled - scaled.mean(dim=0, keepdim=True): ")


def test_what_torchscript_cannot_express_is_refused_by_line():
    def forward(m, d, s):
        vectors = m.embeddings(s)["user"]
        return vectors.numpy().sum(1)

    assert_refused(forward, "TorchScript", "return vectors.numpy().sum(1)")


def test_a_layer_torchscript_cannot_express_is_refused_by_line():
    class Layer(nn.Module):
        def forward(self, x):
            return x * len({*x.shape})

    Layer.__module__ = "torch.nn.layers"  # Tracing does not enter layers of torch.
    message = refusal_of(lambda m, d, s: m.layer(m.embeddings(s)["user"]), layer=Layer())
    assert "TorchScript" in message
    assert "x * len({*x.shape})" in message


def test_batch_norm_without_statistics_is_refused():
    assert_refused(
        lambda m, d, s: m.norm(m.embeddings(s)["item"]),
        "m.norm(",
        "it normalizes by the statistics of the batch; write track_running_stats=True",
        norm=nn.BatchNorm1d(4, track_running_stats=False),
    )


def test_a_module_that_fails_on_its_inputs_is_refused_by_line():
    assert_refused(
        lambda m, d, s: m.over(m.embeddings(s)["user"]),
        "Forward fails on a batch of 7 examples",
        "m.over(m.embeddings",
        over=nn.Linear(5, 1),
    )


def test_an_operation_that_fails_for_sizes_is_refused_by_line():
    def forward(m, d, s):
        pooled = m.embeddings(s)
        users = pooled["user"].reshape(-1, 2)  # Two rows for each request.
        items = pooled["item"].reshape(-1, 2)  # Two rows for each example.
        return (users * items).reshape(-1, 4).sum(1) + to_examples(pooled["user"]).sum(1)

    assert_refused(forward, "(users * items)", "3 requests and 7 examples")


def test_a_forward_of_other_arguments_is_refused():
    class Three(nn.Module):
        def forward(self, dense, sparse, labels):
            return dense

    with pytest.raises(
        ExportError, match=r"Three: .*\(dense, sparse\), got .*dense, sparse, labels"
    ):
        build_program(Three(), SCHEMA, seed=0)


def test_a_module_without_embeddings_is_refused():
    with pytest.raises(ExportError, match="an EmbeddingBagCollection or an EmbeddingCollection in"):
        build_program(Forward(lambda m, d, s: d.sum(1)), SCHEMA, seed=0)


def test_a_module_on_another_device_is_refused():
    module = Forward(lambda m, d, s: m.embeddings(s).values(), embeddings=collection())
    with pytest.raises(ExportError, match=r"items.weight: expected a module on cpu, got .* meta"):
        build_program(module.to("meta"), SCHEMA, seed=0)
