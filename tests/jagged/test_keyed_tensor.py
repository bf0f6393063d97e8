"""KeyedTensor: each method against values written by hand, and refusals."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedTensor
from tests.cases import cases, refused

VALUES = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])  # user: 1 column, item: 2


@pytest.fixture
def keyed():
    return KeyedTensor(["user", "item"], [1, 2], VALUES)


def same(actual, expected):
    assert_close(actual, expected, rtol=0, atol=0)


def test_sizes(keyed):
    assert keyed.keys() == ["user", "item"]
    assert keyed.values() is VALUES
    assert keyed.key_dim() == 1
    assert keyed.device() == torch.device("cpu")
    assert keyed.length_per_key() == [1, 2]
    assert keyed.offset_per_key() == [0, 1, 3]


def test_a_key_gives_a_view_of_its_columns(keyed):
    same(keyed["item"], torch.tensor([[2.0, 3.0], [5.0, 6.0]]))
    assert keyed["item"].data_ptr() == VALUES[:, 1:].data_ptr()


def test_key_dim_0_keeps_keys_in_rows():
    keyed = KeyedTensor(["a", "b"], [1, 1], VALUES, key_dim=0)
    same(keyed["b"], torch.tensor([[4.0, 5.0, 6.0]]))


def test_to_dict(keyed):
    parts = keyed.to_dict()
    assert list(parts) == ["user", "item"]
    same(parts["user"], torch.tensor([[1.0], [4.0]]))
    same(parts["item"], torch.tensor([[2.0, 3.0], [5.0, 6.0]]))


@pytest.mark.parametrize("key_dim", [0, 1])
def test_from_tensor_list(key_dim):
    parts = list(VALUES.split([1, 1] if key_dim == 0 else [1, 2], dim=key_dim))
    keyed = KeyedTensor.from_tensor_list(["a", "b"], parts, key_dim)
    same(keyed.values(), VALUES)
    assert keyed.key_dim() == key_dim
    same(keyed["b"], parts[1])


def test_regroup_collects_keys_over_tensors(keyed):
    other = KeyedTensor(["age"], [1], torch.tensor([[7.0], [8.0]]))
    wide, narrow = KeyedTensor.regroup([keyed, other], [["age", "item"], ["user"]])
    same(wide, torch.tensor([[7.0, 2.0, 3.0], [8.0, 5.0, 6.0]]))
    same(narrow, torch.tensor([[1.0], [4.0]]))


def test_regroup_may_use_a_key_twice(keyed):
    first, second = KeyedTensor.regroup([keyed], [["user"], ["user", "user"]])
    same(first, torch.tensor([[1.0], [4.0]]))
    same(second, torch.tensor([[1.0, 1.0], [4.0, 4.0]]))


def test_regroup_as_dict(keyed):
    groups = KeyedTensor.regroup_as_dict([keyed], [["item"], ["user"]], ["x", "y"])
    assert list(groups) == ["x", "y"]
    same(groups["x"], torch.tensor([[2.0, 3.0], [5.0, 6.0]]))
    same(groups["y"], torch.tensor([[1.0], [4.0]]))


def test_to_another_device(keyed):
    moved = keyed.to(torch.device("meta"))
    assert moved.device().type == "meta"
    assert moved.length_per_key() == [1, 2]
    assert keyed.to(torch.device("cpu")).values() is VALUES


def test_gradients_reach_the_values():
    values = VALUES.clone().requires_grad_()
    KeyedTensor(["user", "item"], [1, 2], values)["item"].sum().backward()
    same(values.grad, torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))


def test_repr_tells_sizes_not_contents(keyed):
    text = repr(keyed)
    assert text == "KeyedTensor({'user': 1, 'item': 2}, key_dim=1, values=torch.float32[2, 3])"


def test_str_shows_the_values_of_each_key():
    keyed = KeyedTensor(["a", "b"], [1, 2], torch.tensor([[1.0, 2.0, 0.1], [4.0, 5.0, 6.0]]))
    assert str(keyed) == ('KeyedTensor({\n    "a": [[1], [4]],\n    "b": [[2, 0.1], [5, 6]],\n})')


@cases(
    ("arguments", "parts"),
    {
        "key-twice": ((["a", "a"], [1, 2], VALUES), ["got 'a' at 0 and 1"]),
        "widths": ((["a"], [1, 2], VALUES), ["expected 1 elements, got 2"]),
        "minus": ((["a", "b"], [4, -1], VALUES), ["'b':", "got -1"]),
        "too-wide": ((["a", "b"], [1, 1], VALUES), ["size 2", "got shape [2, 3]"]),
        "key-dim": ((["a"], [3], VALUES, 2), ["key_dim:", "got 2"]),
        "minus-dim": ((["a"], [3], VALUES, -1), ["key_dim:", "got -1"]),
        "no-tensor": ((["a"], [3], [1, 2, 3]), ["values:", "got list"]),
    },
)
def test_contradictions_are_refused(arguments, parts):
    with refused(InputError, *parts):
        KeyedTensor(*arguments)


@cases(
    ("call", "parts"),
    {
        "key": (lambda keyed: keyed["age"], ["'age'", "['user', 'item']"]),
        "more-tensors-than-keys": (
            lambda _: KeyedTensor.from_tensor_list(["a"], [VALUES, VALUES]),
            ["1 keys", "got 2"],
        ),
        "no-tensors": (lambda _: KeyedTensor.from_tensor_list([], []), ["0 keys"]),
        "no-such-dimension": (
            lambda _: KeyedTensor.from_tensor_list(["a"], [VALUES[0]]),
            ["'a'", "got shape [3]"],
        ),
        "none": (lambda _: KeyedTensor.regroup([], [["a"]]), ["got 0"]),
        "key-in-two": (
            lambda keyed: KeyedTensor.regroup([keyed, keyed], [["item"]]),
            ["duplicate key 'user' in 1"],
        ),
        "empty-group": (
            lambda keyed: KeyedTensor.regroup([keyed], [["item"], []]),
            ["group 1, got 0"],
        ),
        "unknown-in-group": (
            lambda keyed: KeyedTensor.regroup([keyed], [["age"]]),
            ["['user', 'item']", "got 'age'"],
        ),
        "key-dims-differ": (
            lambda keyed: KeyedTensor.regroup(
                [keyed, KeyedTensor(["a"], [2], VALUES, key_dim=0)], [["item"]]
            ),
            ["key_dim 1, got 0 at 1"],
        ),
        "more-names-than-groups": (
            lambda keyed: KeyedTensor.regroup_as_dict([keyed], [["item"]], ["x", "y"]),
            ["expected 1", "got 2"],
        ),
        "name-twice": (
            lambda keyed: KeyedTensor.regroup_as_dict([keyed], [["item"]] * 2, ["x", "x"]),
            ["got 'x' at 0 and 1"],
        ),
    },
)
def test_impossible_calls_are_refused(keyed, call, parts):
    with refused(InputError, *parts):
        call(keyed)
