"""Jagged tensors as torch pytrees, pickled and copied."""

import copy
import pickle

import pytest
import torch
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from embershard.jagged import (
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
    jt_is_equal,
    kjt_is_equal,
)

VALUES = torch.tensor([1, 2, 3])
WEIGHTS = torch.tensor([0.5, 1.5, 2.5])
LENGTHS = torch.tensor([2, 1])
OFFSETS = torch.tensor([0, 2, 3])

JAGGED = [
    pytest.param(None, {"lengths": LENGTHS}, id="lengths"),
    pytest.param(None, {"offsets": OFFSETS}, id="offsets"),
    pytest.param(WEIGHTS, {"lengths": LENGTHS}, id="weights-lengths"),
    pytest.param(WEIGHTS, {"offsets": OFFSETS}, id="weights-offsets"),
]


def roundtrips(thing):
    leaves, spec = pytree.tree_flatten(thing)
    yield pytree.tree_unflatten(leaves, spec)
    yield pickle.loads(pickle.dumps(thing))
    yield copy.deepcopy(thing)


@pytest.mark.parametrize(("weights", "index"), JAGGED)
def test_a_jagged_tensor_comes_back(weights, index):
    jagged = JaggedTensor(VALUES, weights, **index)
    for again in roundtrips(jagged):
        assert jt_is_equal(again, jagged)
        assert (again.offsets_or_none() is None) == ("lengths" in index)


@pytest.mark.parametrize(("weights", "index"), JAGGED)
def test_a_keyed_jagged_tensor_comes_back(weights, index):
    kjt = KeyedJaggedTensor(["a", "b"], VALUES, weights, **index)
    for again in roundtrips(kjt):
        assert kjt_is_equal(again, kjt)
        assert again.length_per_key() == [2, 1]
        assert again.permute([1]).keys() == ["b"]


def test_a_keyed_tensor_comes_back():
    keyed = KeyedTensor(["a", "b"], [1, 2], torch.arange(6.0).view(2, 3))
    for again in roundtrips(keyed):
        assert again.keys() == ["a", "b"]
        assert again.length_per_key() == [1, 2]
        assert again.key_dim() == 1
        assert_close(again.values(), keyed.values(), rtol=0, atol=0)


def test_leaves_are_values_then_lengths_or_offsets_then_weights():
    kjt = KeyedJaggedTensor(["a", "b"], VALUES, WEIGHTS, offsets=OFFSETS)
    leaves = pytree.tree_leaves(kjt)
    assert [id(leaf) for leaf in leaves] == [id(VALUES), id(OFFSETS), id(WEIGHTS)]


@pytest.mark.parametrize("index", [{"lengths": LENGTHS}, {"offsets": OFFSETS}])
def test_what_was_computed_since_does_not_change_the_structure(index):
    kjt = KeyedJaggedTensor(["a", "b"], VALUES, **index)
    before = pytree.tree_structure(kjt)
    kjt.lengths(), kjt.offsets(), kjt.length_per_key()
    assert pytree.tree_structure(kjt) == before


def test_other_keys_are_another_structure():
    one, two = (
        pytree.tree_structure(KeyedJaggedTensor(keys, VALUES, lengths=LENGTHS))
        for keys in (["a", "b"], ["a", "c"])
    )
    assert one != two


def test_mapping_may_change_values_and_leaf_types():
    kjt = KeyedJaggedTensor(["a", "b"], VALUES, lengths=LENGTHS)
    assert pytree.tree_map(lambda leaf: leaf * 2, kjt).values().tolist() == [2, 4, 6]
    assert pytree.tree_map(lambda leaf: leaf.shape, kjt).values() == (3,)


def test_paths_name_the_tensors():
    paths, _ = pytree.tree_flatten_with_path({"batch": JaggedTensor(VALUES, lengths=LENGTHS)})
    assert [pytree.keystr(path) for path, _ in paths] == ["['batch']._values", "['batch']._lengths"]


def test_torch_export_sees_through_a_keyed_jagged_tensor():
    class Sum(torch.nn.Module):
        def forward(self, kjt: KeyedJaggedTensor) -> torch.Tensor:
            return kjt.values().sum() + kjt.lengths()[0]

    kjt = KeyedJaggedTensor(["a", "b"], VALUES, lengths=LENGTHS)
    exported = torch.export.export(Sum(), (kjt,))
    assert exported.module()(kjt).item() == 8
