"""Batches in which keys have different numbers of examples: parts, wholes and equality."""

import pytest
import torch

from embershard.jagged import KeyedJaggedTensor, kjt_is_equal
from embershard.modules import EmbeddingBagCollection, EmbeddingBagConfig
from tests.cases import cases


def batch(strides=((2,), (1,))):
    return KeyedJaggedTensor(
        ["a", "b"],
        torch.arange(6),
        lengths=torch.tensor([1, 2, 3]),
        stride_per_key_per_rank=[list(stride) for stride in strides],
        inverse_indices=(["a", "b"], torch.tensor([[0, 1, 1], [0, 0, 0]])),
    )


def collection(*features):
    """Bags of tables in which each row holds its own number."""
    collection = EmbeddingBagCollection(
        [
            EmbeddingBagConfig(
                name=f"t_{feature}", num_embeddings=9, embedding_dim=1, feature_names=[feature]
            )
            for feature in features
        ]
    )
    for parameter in collection.parameters():
        parameter.data.copy_(torch.arange(9.0).reshape(9, 1))
    return collection


SUMS = {"a": [0.0, 3.0, 3.0], "b": [12.0, 12.0, 12.0]}
"""Sums 0, 1 + 2 and 3 + 4 + 5, expanded to 3 examples."""


def inverse_of(features):
    keys, rows = features.inverse_indices()
    return keys, rows.tolist()


@pytest.mark.parametrize("at", [0, 1])
def test_split_keeps_the_inverse_indices_of_its_keys(at):
    key, row = (("a", [0, 1, 1]), ("b", [0, 0, 0]))[at]
    part = batch().split([1, 1])[at]
    assert inverse_of(part) == ([key], [row])
    assert collection(key)(part)[key].flatten().tolist() == SUMS[key]


def test_split_without_keys_has_no_inverse_indices():
    empty = batch().split([0, 2])[0]
    assert inverse_of(empty) == ([], [])
    assert empty.inverse_indices()[1].shape == (0, 3)


def test_permute_keeps_the_inverse_indices_of_its_keys():
    assert inverse_of(batch().permute([1, 0])) == (["b", "a"], [[0, 0, 0], [0, 1, 1]])
    part = batch().permute([1])
    assert inverse_of(part) == (["b"], [[0, 0, 0]])
    assert collection("b")(part)["b"].flatten().tolist() == SUMS["b"]


def test_permute_repeats_a_key_of_a_variable_batch():
    repeated = batch().permute([0, 1, 0])
    assert inverse_of(repeated) == (["a", "b", "a"], [[0, 1, 1], [0, 0, 0], [0, 1, 1]])
    pooled = collection("a", "b")(repeated)
    assert {key: pooled[key].flatten().tolist() for key in "ab"} == SUMS


def test_keys_without_inverse_indices_have_none_afterwards():
    features = KeyedJaggedTensor(
        ["a", "b"],
        torch.arange(2),
        lengths=torch.ones(2).long(),
        stride_per_key_per_rank=[[1], [1]],
        inverse_indices=(["b"], torch.tensor([[0]])),
    )
    assert inverse_of(features.permute([1, 0])) == (["b"], [[0]])


def test_concat_joins_strides_and_inverse_indices():
    other = KeyedJaggedTensor(
        ["c"],
        torch.arange(3),
        lengths=torch.tensor([1, 1, 1]),
        stride_per_key_per_rank=[[1, 2]],
        inverse_indices=(["c"], torch.tensor([[2, 1, 0]])),
    )
    joined = KeyedJaggedTensor.concat([batch(), other])
    assert joined.keys() == ["a", "b", "c"]
    assert joined.values().tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert joined.lengths().tolist() == [1, 2, 3, 1, 1, 1]
    assert joined.stride_per_key_per_rank() == [[2], [1], [1, 2]]
    assert joined.stride() == 3
    assert inverse_of(joined) == (["a", "b", "c"], [[0, 1, 1], [0, 0, 0], [2, 1, 0]])


def test_concat_undoes_split():
    joined = KeyedJaggedTensor.concat(batch().split([1, 0, 1]))
    assert kjt_is_equal(joined, batch())
    assert inverse_of(joined) == inverse_of(batch())


def three_keys(**more):
    """A batch whose keys have 2, 1 and 2 examples."""
    return KeyedJaggedTensor(
        ["a", "b", "c"],
        torch.arange(7),
        lengths=torch.tensor([1, 2, 3, 0, 1]),
        stride_per_key_per_rank=[[2], [1], [2]],
        **more,
    )


@cases(
    "parts_of",
    {
        "whole": lambda kjt: [kjt],
        "split": lambda kjt: kjt.split([1, 1, 1]),
        "split-without-keys": lambda kjt: kjt.split([0, 2, 0, 1]),
        "split-twice": lambda kjt: kjt.split([2, 1])[0].split([1, 1]),
        "permute": lambda kjt: [kjt.permute([1]), kjt.permute([1, 1]), kjt.permute([])],
        "split-after-permute": lambda kjt: kjt.permute([1, 0]).split([1, 1]),
        "to": lambda kjt: [part.to(torch.device("cpu")) for part in kjt.split([1, 1, 1])],
    },
)
@pytest.mark.parametrize("is_expanded", [False, True])
def test_parts_of_a_variable_batch_keep_its_stride(parts_of, is_expanded):
    """The stride is that of the inverse indices or of the longest key, as in TorchRec 1.8."""
    rows = torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 0]])
    inverse = {"inverse_indices": (["a", "b", "c"], rows)} if is_expanded else {}
    strides = {part.stride() for part in parts_of(three_keys(**inverse))}
    assert strides == {3 if is_expanded else 2}


def test_concat_takes_the_stride_of_its_keys():
    """TorchRec 1.8 does the same."""
    _, short, _ = three_keys().split([1, 1, 1])
    assert KeyedJaggedTensor.concat([short]).stride() == 1
    assert KeyedJaggedTensor.concat(three_keys().split([1, 1, 1])).stride() == 2


def test_a_variable_batch_takes_a_stride_too():
    assert three_keys(stride=5).stride() == 5
    assert three_keys(stride=5).stride_per_key() == [2, 1, 2]


def test_empty_like_joins_what_it_is_like():
    empty = KeyedJaggedTensor.empty_like(batch())
    assert empty.variable_stride_per_key()
    assert kjt_is_equal(KeyedJaggedTensor.concat([empty, batch()]), batch())


def test_other_strides_are_other_batches():
    assert kjt_is_equal(batch(), batch())
    assert not kjt_is_equal(batch(), batch(strides=((1,), (2,))))
