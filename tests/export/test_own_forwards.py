"""An embedding collection that computes more than its lookups is refused: a server runs lookups."""

import pytest
import torch
from torch import nn

from embershard.errors import ExportError
from embershard.export.program_builder import build_program
from embershard.jagged import JaggedTensor, KeyedJaggedTensor, KeyedTensor
from embershard.modules import (
    EmbeddingBagCollection,
    EmbeddingCollection,
    FusedEmbeddingBagCollection,
)
from tests.cases import cases
from tests.export.expanding import Case, Forward
from tests.export.models import SCHEMA, collection
from tests.export.test_sequences import sequences


def scaled(pooled):
    return KeyedTensor(pooled.keys(), pooled.length_per_key(), pooled.values() * 3)


class ScaledBags(EmbeddingBagCollection):
    def forward(self, features):
        return scaled(super().forward(features))


class ScaledFusedBags(FusedEmbeddingBagCollection):
    def forward(self, features):
        return scaled(super().forward(features))


class ScaledLists(EmbeddingCollection):
    def forward(self, features):
        return {
            key: JaggedTensor(lists.values() * 3, lengths=lists.lengths())
            for key, lists in super().forward(features).items()
        }


class NamedBags(EmbeddingBagCollection):
    """Its own class, the library's forward."""

    def count(self):
        return len(self.embedding_bag_configs())


def triple(module, arguments, pooled):
    return scaled(pooled)


def wrap_ids(module, arguments):
    (ids,) = arguments
    return (KeyedJaggedTensor(keys=ids.keys(), values=ids.values() % 2, lengths=ids.lengths()),)


def hooked():
    bags = collection()
    bags.register_forward_hook(triple)
    return bags


def hooked_before():
    bags = collection()
    bags.register_forward_pre_hook(wrap_ids)
    return bags


def assigned():
    bags = collection()
    plain = bags.forward
    bags.forward = lambda features: scaled(plain(features))
    return bags


def refusal_of(embeddings, forward=lambda m, d, s: m.embeddings(s)["user"].sum(1)):
    module = Forward(forward, embeddings=embeddings)
    with pytest.raises(ExportError) as refusal:
        build_program(module, SCHEMA, seed=0)
    return str(refusal.value)


@cases(
    ("make", "kind", "own"),
    {
        "subclass": (
            lambda: collection(ScaledBags),
            "EmbeddingBagCollection",
            "ScaledBags.forward",
        ),
        "fused-subclass": (
            lambda: collection(ScaledFusedBags),
            "FusedEmbeddingBagCollection",
            "ScaledFusedBags.forward",
        ),
        "hook": (hooked, "EmbeddingBagCollection", "the forward hook triple"),
        "assigned": (
            assigned,
            "EmbeddingBagCollection",
            "a forward that was assigned to the instance",
        ),
    },
)
def test_a_collection_with_its_own_forward_is_refused_with_the_place_for_it(make, kind, own):
    assert refusal_of(make()) == (
        f"embeddings: expected the forward of {kind}, got {own}, which a server does not run; "
        "move its code into your model's forward, after self.embeddings(sparse)"
    )


def test_a_collection_of_sequences_with_its_own_forward_is_refused():
    lists = ScaledLists(sequences().embedding_configs())
    message = refusal_of(lists, lambda m, d, s: m.embeddings(s)["item"].to_padded_dense(1).sum(1))
    assert "expected the forward of EmbeddingCollection, got ScaledLists.forward" in message


def test_a_collection_that_changes_ids_before_its_lookups_is_refused():
    assert refusal_of(hooked_before()) == (
        "embeddings: expected EmbeddingBagCollection without forward pre-hooks, got wrap_ids, "
        "which a server does not run; change ids in the data, or by the id map of the schema's "
        "input"
    )


def test_a_subclass_that_leaves_forward_alone_is_exported():
    module = Forward(
        lambda m, d, s: m.linear(m.embeddings(s)["item"]).sum(1) * m.embeddings.count(),
        embeddings=collection(NamedBags),
        linear=nn.Linear(4, 2),
    )
    program = build_program(module, SCHEMA, seed=0)
    case = Case(module, SCHEMA)
    with torch.no_grad():
        expected = module(*case.module_inputs())
    got = program.script(*case.program_inputs())["score"]
    torch.testing.assert_close(got, expected)


def test_a_collection_whose_forward_is_compiled_is_exported():
    embeddings = collection()
    embeddings.forward = torch.compile(embeddings.forward, backend="eager")
    module = Forward(lambda m, d, s: m.embeddings(s)["item"].sum(1), embeddings=embeddings)
    build_program(module, SCHEMA, seed=0)


def test_a_collection_that_forward_does_not_call_may_have_hooks():
    module = Forward(
        lambda m, d, s: m.embeddings(s)["item"].sum(1) + m.embeddings(s)["user"].sum(1),
        embeddings=collection(),
        unused=hooked(),
    )
    build_program(module, SCHEMA, seed=0)
