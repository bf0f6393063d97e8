"""Contradictory jagged input: refused with where, expected and got."""

import pytest
import torch

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from tests.cases import cases


def ints(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype)


@pytest.mark.parametrize("cls", [JaggedTensor, KeyedJaggedTensor])
@cases(
    ("arguments", "message"),
    {
        "neither": ({}, "lengths and offsets: expected one of them, got neither"),
        "lengths-and-offsets": (
            {"lengths": ints(2), "offsets": ints(0, 1, 2)},
            "offsets: expected 2 elements, got 3",
        ),
        "float-lengths": (
            {"lengths": torch.tensor([2.0])},
            "lengths: expected int32 or int64, got torch.float32",
        ),
        "int16-offsets": (
            {"offsets": ints(0, 2, dtype=torch.int16)},
            "offsets: expected int32 or int64, got torch.int16",
        ),
        "3d-lengths": (
            {"lengths": torch.zeros(1, 1, 1, dtype=torch.int64)},
            r"lengths: expected 1 dimension, got shape \[1, 1, 1\]",
        ),
        "no-offsets": ({"offsets": ints()}, "offsets: expected at least 1"),
        "list-lengths": ({"lengths": [2]}, "lengths: expected a tensor, got list"),
        "more-weights-than-values": (
            {"lengths": ints(2), "weights": torch.ones(3)},
            r"weights: expected one for each of 2 values, got shape \[3\]",
        ),
        "list-weights": (
            {"lengths": ints(2), "weights": [1.0, 1.0]},
            "weights: expected a tensor, got list",
        ),
        "scalar-values": ({"lengths": ints(2), "values": torch.tensor(1)}, "got a scalar"),
        "list-values": ({"lengths": ints(2), "values": [1, 2]}, "values: expected a tensor"),
    },
)
def test_both_classes_refuse(cls, arguments, message):
    arguments = {"values": ints(1, 2), **arguments}
    if cls is KeyedJaggedTensor:
        arguments["keys"] = ["a"]
    with pytest.raises(InputError, match=message):
        cls(**arguments)


def test_a_jagged_tensor_takes_no_table_of_lengths():
    with pytest.raises(InputError, match=r"1 dimension, got shape \[1, 2\]"):
        JaggedTensor(ints(1, 2), lengths=ints(1, 1).view(1, 2))


@cases(
    ("keys", "arguments", "message"),
    {
        "key-twice": (
            ["a", "b", "a"],
            {"lengths": ints(1, 1, 0)},
            "keys: expected distinct names, got 'a' at 0 and 2",
        ),
        "lengths-no-multiple-of-keys": (
            ["a", "b"],
            {"lengths": ints(1, 1, 0)},
            r"lengths: expected 2 elements \(2 keys x stride 1\), got 3",
        ),
        "offsets-no-multiple-of-keys": (
            ["a", "b"],
            {"offsets": ints(0, 1, 2, 2)},
            r"offsets: expected 3 elements \(2 keys x stride 1, plus 1\), got 4",
        ),
        "stride-against-lengths": (
            ["a", "b"],
            {"lengths": ints(1, 1), "stride": 2},
            r"lengths: expected 4 elements \(2 keys x stride 2\), got 2",
        ),
        "stride-against-offsets": (
            ["a", "b"],
            {"offsets": ints(0, 1, 2), "stride": 2},
            r"offsets: expected 5 elements \(2 keys x stride 2, plus 1\), got 3",
        ),
        "minus": (["a"], {"lengths": ints(2), "stride": -1}, "stride: expected at least 0"),
        "rows-of-lengths": (
            ["a", "b"],
            {"lengths": ints(1, 1, 0).view(3, 1)},
            "lengths: expected 2 rows, one a key, got 3",
        ),
        "no-keys": ([], {"lengths": ints()}, "expected 0 values without keys, got 2"),
        "counts-against-keys": (
            ["a"],
            {"lengths": ints(2), "length_per_key": [1, 1]},
            "length_per_key: expected 1 elements, got 2",
        ),
        "counts-against-values": (
            ["a"],
            {"lengths": ints(2), "length_per_key": [3]},
            "sum of lengths: expected 2, the number of values, got 3",
        ),
        "negative-count": (
            ["a", "b"],
            {"lengths": ints(1, 1), "length_per_key": [3, -1]},
            "feature 'b': expected at least 0 values, got -1",
        ),
        "negative-stride-of-a-variable-batch": (
            ["a"],
            {"lengths": ints(2), "stride": -1, "stride_per_key_per_rank": [[1]]},
            "stride: expected at least 0, got -1",
        ),
        "stride-below-that-of-a-key": (
            ["a", "b"],
            {"lengths": ints(1, 0, 1), "stride": 1, "stride_per_key_per_rank": [[2], [1]]},
            "stride: expected at least 2, the largest stride of a key, got 1",
        ),
        "stride-that-inverse-indices-contradict": (
            ["a"],
            {
                "lengths": ints(2),
                "stride": 2,
                "stride_per_key_per_rank": [[1]],
                "inverse_indices": (["a"], ints(0, 0, 0).reshape(1, 3)),
            },
            "stride: expected 3, the width of the inverse indices, got 2",
        ),
        "strides-of-more-keys": (
            ["a"],
            {"lengths": ints(2), "stride_per_key_per_rank": [[1], [1]]},
            "stride_per_key_per_rank: expected 1 keys, got 2",
        ),
        "negative-stride-of-a-key": (
            ["a", "b"],
            {"lengths": ints(1, 1), "stride_per_key_per_rank": [[3], [-1]]},
            "feature 'b': expected at least 0 examples, got -1",
        ),
    },
)
def test_a_keyed_jagged_tensor_refuses(keys, arguments, message):
    with pytest.raises(InputError, match=message):
        KeyedJaggedTensor(keys, ints(1, 2), **arguments)


@cases(
    "read",
    {
        "length_per_key": lambda kjt: kjt.length_per_key(),
        "split": lambda kjt: kjt.split([1, 1]),
        "permute": lambda kjt: kjt.permute([1, 0]),
        "key": lambda kjt: kjt["a"],
        "to_dict": lambda kjt: kjt.to_dict(),
    },
)
def test_lengths_that_do_not_sum_to_the_values_are_refused_when_read(read):
    kjt = KeyedJaggedTensor(["a", "b"], ints(1, 2, 3), lengths=ints(1, 1))
    with pytest.raises(InputError, match=r"sum of lengths: expected 3, .* got 2"):
        read(kjt)


def test_a_negative_length_is_named_before_the_sum():
    kjt = KeyedJaggedTensor(["a", "b"], ints(1, 2, 3), lengths=ints(1, 1, 2, -2))
    with pytest.raises(InputError) as raised:
        kjt.length_per_key()
    assert str(raised.value) == (
        "KeyedJaggedTensor feature 'b', example 1: expected a length of at least 0, got -2"
    )


def test_sync_constructors_refuse_contradictory_contents():
    with pytest.raises(InputError, match=r"sum of lengths: expected 3, .* got 4"):
        KeyedJaggedTensor.from_lengths_sync(["a", "b"], ints(1, 2, 3), ints(2, 2))
    with pytest.raises(InputError, match=r"sum of lengths: expected 3, .* got 4"):
        KeyedJaggedTensor.from_offsets_sync(["a", "b"], ints(1, 2, 3), ints(0, 2, 4))
    with pytest.raises(InputError, match="offsets: expected the first to be 0, got 1"):
        KeyedJaggedTensor.from_offsets_sync(["a", "b"], ints(1, 2, 3), ints(1, 2, 4))
    with pytest.raises(InputError, match="feature 'b': expected at least 0 values, got -1"):
        KeyedJaggedTensor.from_offsets_sync(["a", "b"], ints(1, 2, 3), ints(0, 4, 3))


def weighted(keys, stride=1):
    lengths = torch.zeros(len(keys) * stride, dtype=torch.int32)
    return KeyedJaggedTensor(keys, ints(), torch.empty(0), lengths=lengths)


def variable(key, inverse=None):
    return KeyedJaggedTensor(
        [key],
        ints(),
        torch.empty(0),
        lengths=ints(0),
        stride_per_key_per_rank=[[1]],
        inverse_indices=None if inverse is None else ([key], inverse.reshape(1, -1)),
    )


@cases(
    ("call", "message"),
    {
        "split-too-few": (lambda: weighted(["a", "b"]).split([1]), "sum to 2 keys, got 1"),
        "split-negative": (
            lambda: weighted(["a", "b"]).split([3, -1]),
            "split: expected at least 0 keys at 1, got -1",
        ),
        "permute-past-the-end": (
            lambda: weighted(["a", "b"]).permute([0, 2]),
            r"permute: expected indices in 0\.\.1, got 2 at 1",
        ),
        "permute-negative": (
            lambda: weighted(["a", "b"]).permute([-1]),
            r"permute: expected indices in 0\.\.1, got -1 at 0",
        ),
        "none": (lambda: KeyedJaggedTensor.concat([]), "at least 1 KeyedJaggedTensor, got 0"),
        "concat-strides": (
            lambda: KeyedJaggedTensor.concat([weighted(["a"]), weighted(["b"], stride=2)]),
            r"features \['b'\]: expected 1 examples as in \['a'\], got 2",
        ),
        "concat-key-twice": (
            lambda: KeyedJaggedTensor.concat([weighted(["a"]), weighted(["b", "a"])]),
            "got 'a' at 0 and 2",
        ),
        "concat-weights-in-one": (
            lambda: KeyedJaggedTensor.concat(
                [weighted(["a"]), KeyedJaggedTensor(["b"], ints(), lengths=ints(0))]
            ),
            r"features \['b'\]: expected weights as in \['a'\], in all or in none",
        ),
        "concat-variable-in-one": (
            lambda: KeyedJaggedTensor.concat([variable("a"), weighted(["b"])]),
            r"features \['b'\]: expected stride_per_key_per_rank as in \['a'\], in all or in none",
        ),
        "concat-inverse-in-one": (
            lambda: KeyedJaggedTensor.concat([variable("a", ints(0)), variable("b")]),
            r"features \['b'\]: expected inverse_indices as in \['a'\], in all or in none",
        ),
        "concat-inverse-examples": (
            lambda: KeyedJaggedTensor.concat([variable("a", ints(0)), variable("b", ints(0, 0))]),
            r"features \['b'\]: inverse_indices: expected \[1\] examples as in \['a'\], "
            r"got \[2\]",
        ),
        "split-inverse-rows": (
            lambda: KeyedJaggedTensor(
                ["a"],
                ints(),
                lengths=ints(0),
                stride_per_key_per_rank=[[1]],
                inverse_indices=(["a"], ints(0, 0)),
            ).split([1]),
            r"inverse_indices: expected a row for each of \['a'\], got shape \[2\]",
        ),
        "from-jt-dict-examples": (
            lambda: KeyedJaggedTensor.from_jt_dict(
                {"a": JaggedTensor.empty(), "b": JaggedTensor(ints(1), lengths=ints(1))}
            ),
            r"features \['b'\]: expected 0 examples as in \['a'\], got 1",
        ),
    },
)
def test_impossible_calls_on_keyed_jagged_tensors_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


TABLE = torch.zeros(2, 3)


@cases(
    ("call", "message"),
    {
        "none": (lambda: JaggedTensor.from_dense([]), "at least 1 example, got 0"),
        "from-dense-weights": (
            lambda: JaggedTensor.from_dense([ints(1), ints(2)], [torch.ones(1)]),
            r"expected weights of lengths \[1, 1\], got \[1\]",
        ),
        "from-dense-lengths-of-a-list": (
            lambda: JaggedTensor.from_dense_lengths(ints(1), ints(1)),
            r"expected values \[B, N, ...\], got shape \[1\]",
        ),
        "from-dense-lengths-too-few": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(1)),
            r"expected 2 lengths, got shape \[1\]",
        ),
        "from-dense-lengths-past-the-row": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(3, 4)),
            r"expected lengths in 0\.\.3, got 4 at example 1",
        ),
        "from-dense-lengths-negative": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(-1, 4)),
            "got -1 at example 0",
        ),
        "from-dense-lengths-weights": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(1, 1), TABLE[:1]),
            r"expected weights \[2, 3\], got shape \[1, 3\]",
        ),
        "to-dense": (
            lambda: JaggedTensor(ints(1, 2), lengths=ints(1)).to_dense(),
            "sum of lengths: expected 2, .* got 1",
        ),
        "padded-width": (
            lambda: JaggedTensor(ints(1), lengths=ints(1)).to_padded_dense(-1),
            "desired_length: expected at least 0, got -1",
        ),
        "padded-to-a-negative-length": (
            lambda: JaggedTensor(ints(), lengths=ints(-2, -1)).to_padded_dense(),
            "lengths: expected at least 0, got only negative ones, up to -1",
        ),
        "padding-of-integers": (
            lambda: JaggedTensor(ints(1), lengths=ints(1)).to_padded_dense(2, 0.5),
            "padding_value: expected a whole number for integer values, got 0.5",
        ),
        "padding-of-integers-nan": (
            lambda: JaggedTensor(ints(1), lengths=ints(1)).to_padded_dense(2, float("nan")),
            "got nan",
        ),
    },
)
def test_impossible_calls_on_jagged_tensors_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
