"""Contradictory jagged input: refused with where, expected and got."""

import pytest
import torch

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor


def ints(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype)


@pytest.mark.parametrize("cls", [JaggedTensor, KeyedJaggedTensor])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({}, "lengths and offsets: expected one of them, got neither", id="neither"),
        pytest.param(
            {"lengths": ints(2), "offsets": ints(0, 1, 2)},
            "offsets: expected 2 elements, got 3",
            id="lengths-and-offsets",
        ),
        pytest.param(
            {"lengths": torch.tensor([2.0])},
            "lengths: expected int32 or int64, got torch.float32",
            id="float-lengths",
        ),
        pytest.param(
            {"offsets": ints(0, 2, dtype=torch.int16)},
            "offsets: expected int32 or int64, got torch.int16",
            id="int16-offsets",
        ),
        pytest.param(
            {"lengths": torch.zeros(1, 1, 1, dtype=torch.int64)},
            r"lengths: expected 1 dimension, got shape \[1, 1, 1\]",
            id="3d-lengths",
        ),
        pytest.param({"offsets": ints()}, "offsets: expected at least 1", id="no-offsets"),
        pytest.param({"lengths": [2]}, "lengths: expected a tensor, got list", id="list-lengths"),
        pytest.param(
            {"lengths": ints(2), "weights": torch.ones(3)},
            r"weights: expected one for each of 2 values, got shape \[3\]",
            id="more-weights-than-values",
        ),
        pytest.param(
            {"lengths": ints(2), "weights": [1.0, 1.0]},
            "weights: expected a tensor, got list",
            id="list-weights",
        ),
        pytest.param(
            {"lengths": ints(2), "values": torch.tensor(1)}, "got a scalar", id="scalar-values"
        ),
        pytest.param(
            {"lengths": ints(2), "values": [1, 2]}, "values: expected a tensor", id="list-values"
        ),
    ],
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


@pytest.mark.parametrize(
    ("keys", "arguments", "message"),
    [
        pytest.param(
            ["a", "b", "a"],
            {"lengths": ints(1, 1, 0)},
            "keys: expected distinct names, got 'a' at 0 and 2",
            id="key-twice",
        ),
        pytest.param(
            ["a", "b"],
            {"lengths": ints(1, 1, 0)},
            r"lengths: expected 2 elements \(2 keys x stride 1\), got 3",
            id="lengths-no-multiple-of-keys",
        ),
        pytest.param(
            ["a", "b"],
            {"offsets": ints(0, 1, 2, 2)},
            r"offsets: expected 3 elements \(2 keys x stride 1, plus 1\), got 4",
            id="offsets-no-multiple-of-keys",
        ),
        pytest.param(
            ["a", "b"],
            {"lengths": ints(1, 1), "stride": 2},
            r"lengths: expected 4 elements \(2 keys x stride 2\), got 2",
            id="stride-against-lengths",
        ),
        pytest.param(
            ["a", "b"],
            {"offsets": ints(0, 1, 2), "stride": 2},
            r"offsets: expected 5 elements \(2 keys x stride 2, plus 1\), got 3",
            id="stride-against-offsets",
        ),
        pytest.param(
            ["a"], {"lengths": ints(2), "stride": -1}, "stride: expected at least 0", id="minus"
        ),
        pytest.param(
            ["a", "b"],
            {"lengths": ints(1, 1, 0).view(3, 1)},
            "lengths: expected 2 rows, one a key, got 3",
            id="rows-of-lengths",
        ),
        pytest.param([], {"lengths": ints()}, "expected none without keys, got 2", id="no-keys"),
        pytest.param(
            ["a"],
            {"lengths": ints(2), "length_per_key": [1, 1]},
            "length_per_key: expected 1 elements, got 2",
            id="counts-against-keys",
        ),
        pytest.param(
            ["a"],
            {"lengths": ints(2), "length_per_key": [3]},
            "sum of lengths: expected 2, the number of values, got 3",
            id="counts-against-values",
        ),
        pytest.param(
            ["a", "b"],
            {"lengths": ints(1, 1), "length_per_key": [3, -1]},
            "feature 'b': expected at least 0 values, got -1",
            id="negative-count",
        ),
    ],
)
def test_a_keyed_jagged_tensor_refuses(keys, arguments, message):
    with pytest.raises(InputError, match=message):
        KeyedJaggedTensor(keys, ints(1, 2), **arguments)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda kjt: kjt.length_per_key(), id="length_per_key"),
        pytest.param(lambda kjt: kjt.split([1, 1]), id="split"),
        pytest.param(lambda kjt: kjt.permute([1, 0]), id="permute"),
        pytest.param(lambda kjt: kjt["a"], id="key"),
        pytest.param(lambda kjt: kjt.to_dict(), id="to_dict"),
    ],
)
def test_lengths_that_do_not_sum_to_the_values_are_refused_when_read(read):
    kjt = KeyedJaggedTensor(["a", "b"], ints(1, 2, 3), lengths=ints(1, 1))
    with pytest.raises(InputError, match=r"sum of lengths: expected 3, .* got 2"):
        read(kjt)


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: weighted(["a", "b"]).split([1]), "sum to 2 keys, got 1", id="split-too-few"
        ),
        pytest.param(
            lambda: weighted(["a", "b"]).split([3, -1]),
            "split: expected at least 0 keys at 1, got -1",
            id="split-negative",
        ),
        pytest.param(
            lambda: weighted(["a", "b"]).permute([0, 2]),
            r"permute: expected indices in 0\.\.1, got 2 at 1",
            id="permute-past-the-end",
        ),
        pytest.param(
            lambda: weighted(["a", "b"]).permute([-1]),
            r"permute: expected indices in 0\.\.1, got -1 at 0",
            id="permute-negative",
        ),
        pytest.param(
            lambda: KeyedJaggedTensor.concat([]), "at least 1 KeyedJaggedTensor, got 0", id="none"
        ),
        pytest.param(
            lambda: KeyedJaggedTensor.concat([weighted(["a"]), weighted(["b"], stride=2)]),
            r"features \['b'\]: expected 1 examples as in \['a'\], got 2",
            id="concat-strides",
        ),
        pytest.param(
            lambda: KeyedJaggedTensor.concat([weighted(["a"]), weighted(["b", "a"])]),
            "got 'a' at 0 and 2",
            id="concat-key-twice",
        ),
        pytest.param(
            lambda: KeyedJaggedTensor.concat(
                [weighted(["a"]), KeyedJaggedTensor(["b"], ints(), lengths=ints(0))]
            ),
            r"features \['b'\]: expected weights as in \['a'\], in all or in none",
            id="concat-weights-in-one",
        ),
        pytest.param(
            lambda: KeyedJaggedTensor.from_jt_dict(
                {"a": JaggedTensor.empty(), "b": JaggedTensor(ints(1), lengths=ints(1))}
            ),
            r"features \['b'\]: expected 0 examples as in \['a'\], got 1",
            id="from-jt-dict-examples",
        ),
    ],
)
def test_impossible_calls_on_keyed_jagged_tensors_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


TABLE = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: JaggedTensor.from_dense([]), "at least 1 example, got 0", id="none"),
        pytest.param(
            lambda: JaggedTensor.from_dense([ints(1), ints(2)], [torch.ones(1)]),
            r"expected weights of lengths \[1, 1\], got \[1\]",
            id="from-dense-weights",
        ),
        pytest.param(
            lambda: JaggedTensor.from_dense_lengths(ints(1), ints(1)),
            r"expected values \[B, N, ...\], got shape \[1\]",
            id="from-dense-lengths-of-a-list",
        ),
        pytest.param(
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(1)),
            r"expected 2 lengths, got shape \[1\]",
            id="from-dense-lengths-too-few",
        ),
        pytest.param(
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(3, 4)),
            r"expected lengths in 0\.\.3, got 4 at example 1",
            id="from-dense-lengths-past-the-row",
        ),
        pytest.param(
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(-1, 4)),
            "got -1 at example 0",
            id="from-dense-lengths-negative",
        ),
        pytest.param(
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(1, 1), TABLE[:1]),
            r"expected weights \[2, 3\], got shape \[1, 3\]",
            id="from-dense-lengths-weights",
        ),
        pytest.param(
            lambda: JaggedTensor(ints(1, 2), lengths=ints(1)).to_dense(),
            "sum of lengths: expected 2, .* got 1",
            id="to-dense",
        ),
        pytest.param(
            lambda: JaggedTensor(ints(1), lengths=ints(1)).to_padded_dense(-1),
            "desired_length: expected at least 0, got -1",
            id="padded-width",
        ),
        pytest.param(
            lambda: JaggedTensor(ints(), lengths=ints(-2, -1)).to_padded_dense(),
            "lengths: expected at least 0, got -1 at most",
            id="padded-to-a-negative-length",
        ),
        pytest.param(
            lambda: JaggedTensor(ints(1), lengths=ints(1)).to_padded_dense(2, 0.5),
            "padding_value: expected a whole number for integer values, got 0.5",
            id="padding-of-integers",
        ),
        pytest.param(
            lambda: JaggedTensor(ints(1), lengths=ints(1)).to_padded_dense(2, float("nan")),
            "got nan",
            id="padding-of-integers-nan",
        ),
    ],
)
def test_impossible_calls_on_jagged_tensors_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
