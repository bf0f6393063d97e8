"""An embedding collection that computes more than its lookups is refused: a server runs lookups."""

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
from tests.cases import cases, refused
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
    """A subclass that keeps the forward of the library."""

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


def user(m, d, s):
    return m.embeddings(s)["user"].sum(1)


def padded(m, d, s):
    return m.embeddings(s)["item"].to_padded_dense(1).sum(1)


AFTER = "after self.embeddings(sparse)"


@cases(
    ("make", "forward", "parts"),
    {
        "subclass": (
            lambda: collection(ScaledBags),
            user,
            ["embeddings:", "EmbeddingBagCollection", "got ScaledBags.forward", AFTER],
        ),
        "fused-subclass": (
            lambda: collection(ScaledFusedBags),
            user,
            ["FusedEmbeddingBagCollection", "got ScaledFusedBags.forward"],
        ),
        "sequences": (
            lambda: ScaledLists(sequences().embedding_configs()),
            padded,
            ["EmbeddingCollection", "got ScaledLists.forward"],
        ),
        "hook": (hooked, user, ["got the forward hook triple"]),
        "assigned": (assigned, user, ["got a forward that was assigned"]),
        "hook-before": (hooked_before, user, ["embeddings:", "pre-hooks, got wrap_ids", "id map"]),
    },
)
def test_a_collection_that_computes_more_is_refused(make, forward, parts):
    with refused(ExportError, *parts):
        build_program(Forward(forward, embeddings=make()), SCHEMA, seed=0)


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
    score = program.script(*case.program_inputs())["score"]
    torch.testing.assert_close(score, expected)


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
