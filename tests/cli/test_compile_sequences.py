"""`embershard compile` on models with sequences: widths that vary, empty lists, no examples."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard.cli import main
from embershard.client import Client
from embershard.export import export_model
from embershard.models import DIN
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingBagConfig,
    EmbeddingCollection,
    EmbeddingConfig,
)
from embershard.package import DenseInput, Hash, Package, Schema, SparseInput
from embershard.serving import Server, ServerOptions
from tests.serving.asking import Asked, named, outputs_of
from tests.serving.attending import SCHEMA, export_attending, requests
from tests.serving.messages import MessagePredictor
from tests.serving.oracle import Oracle

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # Compiling counts to a first test.

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return export_attending(tmp_path_factory.mktemp("attending"), weights="int8")


@pytest.fixture(scope="module")
def compiled(package):
    """Version 2 beside it, compiled: the one time in this file."""
    out = package.parent / "2"
    assert main(["compile", str(package), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def local(compiled):
    return MessagePredictor(compiled, threads=1)


@pytest.fixture(scope="module")
def oracle(package):
    return Oracle(package)


def answers(local, *asked, outputs=()):
    messages = [named(each) for each in asked]
    for message in messages:
        message.outputs.extend(outputs)
    found = local.answers([message.SerializeToString() for message in messages])
    return [outputs_of(each) for each in found]


def assert_scores(got, expected):
    assert got.keys() == expected.keys()
    for name, values in expected.items():
        assert got[name].shape == values.shape
        assert np.abs(got[name] - values).max(initial=0) <= TOLERANCE, name


def histories(*lengths):
    """A request with one history for each length, to be merged."""
    return [
        Asked(
            num_examples=2,
            dense={"age": [0.5], "price": [1.0, -2.0]},
            sparse={
                "user": [[7]],
                "history": [[100 + place for place in range(length)]],
                "item": [[101], [102]],
                "words": [[1, 2], []],
            },
            schema=SCHEMA,
        )
        for length in lengths
    ]


@settings(deadline=None, max_examples=60)
@given(asked=st.lists(requests(), min_size=1, max_size=4))
def test_scores_are_those_of_the_packages_bytes(local, oracle, asked):
    for got, each in zip(answers(local, *asked), asked, strict=True):
        assert_scores(got, oracle.answer(each))


@pytest.mark.parametrize("lengths", [[0], [1], [6], [0, 0, 0], [0, 1], [6, 0, 3, 1]], ids=str)
def test_histories_of_any_lengths(local, oracle, lengths):
    asked = histories(*lengths)
    for got, each in zip(answers(local, *asked), asked, strict=True):
        assert_scores(got, oracle.answer(each))


@pytest.mark.parametrize("left_out", ["history", "item", "words", "all"])
def test_sequences_without_any_id(local, oracle, left_out):
    (asked,) = histories(3)
    for name in list(asked.sparse):
        if left_out in (name, "all"):
            del asked.sparse[name]
    assert_scores(answers(local, asked)[0], oracle.answer(asked))


@pytest.mark.parametrize("length", [0, 4])
def test_a_users_vector_without_examples(local, oracle, length):
    (whole,) = histories(length)
    user = {name: whole.sparse[name] for name in ("user", "history")}
    asked = Asked(num_examples=0, dense={"age": [0.5]}, sparse=user, schema=SCHEMA)
    (got,) = answers(local, asked, outputs=["history_mean"])
    assert_scores(got, {"history_mean": oracle.answer(whole)["history_mean"]})


def test_a_server_serves_it_by_its_target(compiled, oracle):
    (program,) = Package.open(compiled).manifest.compiled
    (asked,) = histories(5)
    options = ServerOptions(port=0, threads=1, dense_program=program.target)
    with (
        Server(compiled.parent.parent, options=options) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        found = client.predict(dense=asked.dense, sparse=asked.sparse)
    assert_scores(found.outputs, oracle.answer(asked))


def test_din_is_compiled(tmp_path):
    schema = Schema(
        dense=[DenseInput("age", scope="request")],
        sparse=[
            SparseInput("user", scope="request", ids=Hash(11)),
            SparseInput("history", scope="request", ids=Hash(30), max_ids=8),
            SparseInput("target", ids=Hash(30), max_ids=1),
        ],
    )
    torch.manual_seed(4)
    bags = EmbeddingBagConfig(
        name="users", num_embeddings=11, embedding_dim=8, feature_names=["user"]
    )
    items = EmbeddingConfig(
        name="items", num_embeddings=30, embedding_dim=8, feature_names=["history", "target"]
    )
    model = DIN(
        EmbeddingBagCollection([bags]),
        EmbeddingCollection([items]),
        history="history",
        target="target",
        dense_in_features=1,
        attention_layer_sizes=[8],
        over_arch_layer_sizes=[16, 1],
    )
    package = export_model(model.served(schema), schema, tmp_path / "din" / "1", weights="int8")
    assert main(["compile", str(package), "--out", str(tmp_path / "din" / "2")]) == 0
    local, oracle = MessagePredictor(tmp_path / "din" / "2", threads=1), Oracle(package)
    asked = [
        Asked(
            num_examples=3,
            dense={"age": [0.1]},
            sparse={"user": [[1]], "history": [list(range(length))], "target": [[1], [2], []]},
            schema=schema,
        )
        for length in (0, 1, 8, 3)
    ]
    alone = [answers(local, each)[0] for each in asked]
    for each, *found in zip(asked, alone, answers(local, *asked), strict=True):
        for got in found:
            assert_scores(got, oracle.answer(each))
