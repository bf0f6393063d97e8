"""Modules with unpooled lookups: their programs, their packages, and refusals."""

import operator

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from embershard.errors import ExportError
from embershard.export import export_model
from embershard.export.program_builder import build_program
from embershard.jagged.segments import pad_jagged
from embershard.models import DIN, TwoTower
from embershard.modules import (
    EmbeddingCollection,
    EmbeddingConfig,
    FusedEmbeddingCollection,
    to_examples,
)
from embershard.package import DenseInput, Identity, Package, Schema, SparseInput
from embershard.package.reader import verify_package
from tests.cases import cases
from tests.export.expanding import Case, Forward
from tests.export.models import SCHEMA, collection
from tests.export.test_scopes import checked

SEQUENCE_TABLES = [
    EmbeddingConfig(
        name="item_rows", num_embeddings=9, embedding_dim=4, feature_names=["history", "item"]
    ),
    EmbeddingConfig(name="user_rows", num_embeddings=5, embedding_dim=4, feature_names=["user"]),
]


def sequences(cls=EmbeddingCollection, tables=SEQUENCE_TABLES):
    torch.manual_seed(1)
    return cls(tables)


def din():
    torch.manual_seed(2)
    return DIN(
        embedding_bag_collection=collection(),
        embedding_collection=sequences(tables=SEQUENCE_TABLES[:1]),
        history="history",
        target="item",
        dense_in_features=3,
        attention_layer_sizes=[5],
        over_arch_layer_sizes=[6, 1],
    )


def function(forward, **submodules):
    return Forward(forward, sequences=sequences(), embeddings=collection(), **submodules)


def attended(m, d, s):
    """Softmax attention with a mask, written out."""
    history = m.sequences(s)["history"]
    keys = to_examples(history.to_padded_dense())
    positions = torch.arange(keys.shape[1]).unsqueeze(0)
    inside = positions < to_examples(history.lengths()).unsqueeze(1)
    query = m.embeddings(s)["item"]
    logits = torch.einsum("bld,bd->bl", keys, query).masked_fill(~inside, -1e9)
    weights = torch.softmax(logits, dim=1) * inside
    return torch.einsum("bl,bld->bd", weights, keys)


FORWARDS = {
    "padded-and-summed": lambda m, d, s: m.sequences(s)["history"].to_padded_dense().sum(1),
    "of-examples": lambda m, d, s: m.sequences(s)["item"].to_padded_dense(3).sum(1),
    "cut-to-a-width": lambda m, d, s: (
        m.sequences(s)["history"].to_padded_dense(desired_length=2, padding_value=0.5).flatten(1)
    ),
    "lengths": lambda m, d, s: (
        m.sequences(s)["history"].lengths().float() + m.sequences(s)["item"].lengths()
    ),
    "marked": lambda m, d, s: (
        to_examples(m.sequences(s)["history"].to_padded_dense().sum(1)) * d[:, 1:2]
    ),
    "two-of-a-request": lambda m, d, s: (
        (x := m.sequences(s))["user"].to_padded_dense(1).squeeze(1)
        + x["history"].to_padded_dense().sum(1)
    ),
    "beside-pooled": lambda m, d, s: torch.cat(
        [m.embeddings(s).values(), m.sequences(s)["history"].to_padded_dense(1).squeeze(1), d], 1
    ),
    "attended": attended,
}


@pytest.mark.parametrize("name", FORWARDS)
def test_programs_give_what_their_modules_give(name):
    checked(function(FORWARDS[name]))


def test_din_is_exported_as_it_is():
    checked(din().served(SCHEMA))


@pytest.mark.parametrize("cls", [EmbeddingCollection, FusedEmbeddingCollection])
def test_a_module_may_have_sequences_alone(cls):
    module = Forward(
        lambda m, d, s: m.sequences(s)["x"].to_padded_dense().sum(1),
        sequences=sequences(
            cls,
            [EmbeddingConfig(name="t", num_embeddings=7, embedding_dim=4, feature_names=["x"])],
        ),
    )
    schema = Schema(dense=[DenseInput("a")], sparse=[SparseInput("x", scope="request", max_ids=9)])
    assert checked(module, schema)["score"][1].shape == (11, 4)


def test_work_on_the_history_alone_is_done_once_per_request():
    program = build_program(din(), SCHEMA, seed=0)
    nodes = {node.target: node for node in program.graph.nodes}
    (keys,) = nodes["attention.of_keys"].all_input_nodes
    assert keys.target is pad_jagged
    (_, lengths, _) = keys.all_input_nodes
    values = keys.args[0]
    assert values.target is operator.getitem
    assert (values.args[0].name, values.args[1]) == ("request_inputs", 2)
    assert lengths.args[0].args[1] == 3


def test_two_towers_give_the_users_vector_once_per_request():
    torch.manual_seed(5)
    towers = TwoTower(collection(), [0], ["user", "history"], [1, 2], ["item"], [6, 3])
    result = checked(towers.served(SCHEMA))
    assert {name: (spec.scope, output.shape) for name, (spec, output) in result.items()} == {
        "score": ("example", (11,)),
        "user": ("request", (5, 3)),
        "item": ("example", (11, 3)),
    }


def test_a_package_says_which_lookups_are_sequences(tmp_path):
    out = export_model(din(), SCHEMA, tmp_path / "din" / "1")

    verify_package(out)
    package = Package.open(out)
    lookups = {
        item.name: [(lookup.table, lookup.output, lookup.pooling) for lookup in item.lookups]
        for item in package.manifest.sparse
    }
    assert lookups == {
        "user": [("users", "pooled", "sum")],
        "item": [("items", "pooled", "mean"), ("item_rows", "sequence", None)],
        "history": [("items", "pooled", "mean"), ("item_rows", "sequence", None)],
    }
    assert all(np.isfinite(sample.outputs["score"]).all() for sample in package.samples())


def test_samples_are_scored_with_the_stored_rows(tmp_path):
    """Expected scores are products of the stored rows of histories and candidates."""
    module = Forward(
        lambda m, d, s: torch.einsum(
            "bld,bd->b",
            to_examples((x := m.sequences(s))["history"].to_padded_dense()),
            x["item"].to_padded_dense(1).squeeze(1),
        ),
        sequences=sequences(tables=SEQUENCE_TABLES[:1]),
    )
    ids = Identity(8, unknown="oov")
    schema = Schema(
        sparse=[
            SparseInput("item", ids=ids),
            SparseInput("history", scope="request", ids=ids, max_ids=50),
        ]
    )
    package = Package.open(export_model(module, schema, tmp_path / "m" / "1", weights="int4"))
    table = package.manifest.table("item_rows")
    rows = table.row_format.dequantize_rows(package.read_rows("item_rows", np.arange(9)))
    for sample in package.samples():
        ends = np.cumsum(sample.lengths)
        *items, history = np.split(np.where(sample.values < 8, sample.values, 8), ends[:-1])
        items = [np.where(item < 0, 8, item) for item in items]
        history = np.where(history < 0, 8, history)
        expected = [rows[history].sum(0) @ rows[item[0]] if len(item) else 0.0 for item in items]
        assert_close(
            torch.from_numpy(sample.outputs["score"]),
            torch.tensor(expected, dtype=torch.float32),
            rtol=1e-4,
            atol=1e-5,
        )


@cases(
    ("forward", "reason"),
    {
        "values": (
            lambda m, d, s: m.sequences(s)["history"].values(),
            "expected <sequence>.to_padded_dense() or .lengths()",
        ),
        "marked-before-it-is-padded": (
            lambda m, d, s: to_examples(m.sequences(s)["history"]),
            "expected <sequence>.to_padded_dense() or .lengths()",
        ),
        "unknown-key": (
            lambda m, d, s: m.sequences(s)["past"].lengths(),
            "expected one of history, item, user, got 'past'",
        ),
        "all": (lambda m, d, s: m.sequences(s).values(), "expected sequences['<key>']"),
        "width-of-another": (
            lambda m, d, s: (
                (x := m.sequences(s))["item"]
                .to_padded_dense(x["history"].to_padded_dense().shape[1])
                .sum(1)
            ),
            "expected numbers as desired_length and padding_value",
        ),
        "lists-without-limit": (
            lambda m, d, s: m.sequences(s)["item"].to_padded_dense().sum(1),
            "feature 'item': expected a limit on its lists, which a server pads to the longest "
            "list of a batch, got max_ids=0; write SparseInput(",
        ),
        "output": (
            lambda m, d, s: m.sequences(s)["history"],
            "expected a sequence to be padded first",
        ),
        "helpless-without-history": (
            lambda m, d, s: m.sequences(s)["history"].to_padded_dense()[:, 0],
            "index 0 is out of bounds for dimension 1 with size 0",
        ),
        "what-pads-hold-counts": (
            lambda m, d, s: m.sequences(s)["history"].to_padded_dense().sub(5).amax(1),
            "depend on that example only",
        ),
        "depends-on-the-longest": (
            lambda m, d, s: (x := m.sequences(s)["history"].to_padded_dense()).sum(1) / x.shape[1],
            "depend on that example only",
        ),
    },
)
def test_what_cannot_be_exported_is_refused(forward, reason):
    with pytest.raises(ExportError) as refusal:
        build_program(function(forward), SCHEMA, seed=0)
    assert reason in str(refusal.value)


def test_mixing_neighbours_is_named_by_line_despite_padding():
    def forward(m, d, s):
        keys = torch.relu(m.sequences(s)["history"].to_padded_dense() + 1)
        mean = keys.mean(0, keepdim=True)
        return (keys * mean).sum((1, 2))

    with pytest.raises(ExportError, match=r"keys\.mean\(0, keepdim=True\)"):
        build_program(function(forward), SCHEMA, seed=0)


def test_weights_of_a_sequence_are_refused():
    schema = Schema(
        dense=SCHEMA.dense,
        sparse=[SparseInput("user"), SparseInput("item"), SparseInput("history", weighted=True)],
    )
    module = Forward(
        lambda m, d, s: sum(user.to_padded_dense().sum(1) for user in [m.sequences(s)["user"]]),
        sequences=sequences(),
    )
    with pytest.raises(ExportError, match="'history': expected weighted=False in the schema"):
        build_program(module, schema, seed=0)


class Unmarked(nn.Module):
    """Attention without `to_examples`: inputs in request scope are expanded to examples at once."""

    def __init__(self):
        super().__init__()
        self.sequences = sequences()

    def forward(self, dense, sparse):
        sequences = self.sequences(sparse)
        keys = sequences["history"].to_padded_dense()
        query = sequences["item"].to_padded_dense(1)
        return torch.bmm(keys, query.transpose(1, 2)).sum((1, 2)) + dense.sum(1)


@cases(
    "request_of_example",
    {
        "R1-B1": [0],
        "R1-B9": [0] * 9,
        "R6-B6": list(range(6)),
        "R3-B5": [0, 1, 1, 1, 2],
    },
)
@pytest.mark.parametrize("make", [din, Unmarked], ids=["marked", "unmarked"])
def test_any_numbers_of_requests_and_examples(make, request_of_example):
    module = make()
    module = module.served(SCHEMA) if isinstance(module, DIN) else module
    program = build_program(module, SCHEMA, seed=0)
    case = Case(module, SCHEMA, seed=3, request_of_example=torch.tensor(request_of_example))
    module.eval()
    with torch.no_grad():
        outputs = program.script(*case.program_inputs())
        assert_close(outputs["score"], module(*case.module_inputs()), rtol=1e-5, atol=1e-6)
