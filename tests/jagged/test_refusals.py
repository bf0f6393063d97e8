"""Contradictory jagged input is refused with its place, and expected and received values."""

import pytest
import torch

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, KeyedJaggedTensor
from tests.cases import cases, refused


def ints(*numbers, dtype=torch.int64):
    return torch.tensor(numbers, dtype=dtype)


def zeros(*shape):
    return torch.zeros(shape, dtype=torch.int64)


TWO = {"lengths": ints(2)}


@pytest.mark.parametrize("cls", [JaggedTensor, KeyedJaggedTensor])
@cases(
    ("arguments", "parts"),
    {
        "neither": ({}, ["lengths and offsets", "got neither"]),
        "both": (TWO | {"offsets": ints(0, 1, 2)}, ["offsets: expected 2 elements, got 3"]),
        "float-lengths": ({"lengths": torch.tensor([2.0])}, ["lengths:", "got torch.float32"]),
        "int16-offsets": (
            {"offsets": ints(0, 2, dtype=torch.int16)},
            ["offsets:", "got torch.int16"],
        ),
        "3d-lengths": ({"lengths": zeros(1, 1, 1)}, ["lengths:", "got shape [1, 1, 1]"]),
        "no-offsets": ({"offsets": ints()}, ["offsets:", "got 0"]),
        "list-lengths": ({"lengths": [2]}, ["lengths:", "got list"]),
        "more-weights-than-values": (
            TWO | {"weights": torch.ones(3)},
            ["weights:", "2 values", "got shape [3]"],
        ),
        "list-weights": (TWO | {"weights": [1.0, 1.0]}, ["weights:", "got list"]),
        "scalar-values": (TWO | {"values": torch.tensor(1)}, ["values:", "got a scalar"]),
        "list-values": (TWO | {"values": [1, 2]}, ["values:", "got list"]),
    },
)
def test_both_classes_refuse(cls, arguments, parts):
    arguments = {"values": ints(1, 2), **arguments}
    if cls is KeyedJaggedTensor:
        arguments["keys"] = ["a"]
    with refused(InputError, *parts):
        cls(**arguments)


@cases(
    ("keys", "arguments", "parts"),
    {
        "key-twice": (["a", "b", "a"], {"lengths": ints(1, 1, 0)}, ["keys:", "got 'a' at 0 and 2"]),
        "lengths-no-multiple-of-keys": (
            ["a", "b"],
            {"lengths": ints(1, 1, 0)},
            ["lengths: expected 2", "2 keys x stride 1", "got 3"],
        ),
        "offsets-no-multiple-of-keys": (
            ["a", "b"],
            {"offsets": ints(0, 1, 2, 2)},
            ["offsets: expected 3", "2 keys x stride 1", "got 4"],
        ),
        "stride-against-lengths": (
            ["a", "b"],
            {"lengths": ints(1, 1), "stride": 2},
            ["lengths: expected 4", "2 keys x stride 2", "got 2"],
        ),
        "minus": (["a"], TWO | {"stride": -1}, ["stride:", "got -1"]),
        "rows-of-lengths": (["a", "b"], {"lengths": zeros(3, 1)}, ["lengths: expected 2", "got 3"]),
        "no-keys": ([], {"lengths": ints()}, ["values:", "without keys, got 2"]),
        "counts-against-keys": (
            ["a"],
            TWO | {"length_per_key": [1, 1]},
            ["length_per_key: expected 1", "got 2"],
        ),
        "counts-against-values": (
            ["a"],
            TWO | {"length_per_key": [3]},
            ["sum of lengths: expected 2", "got 3"],
        ),
        "negative-count": (
            ["a", "b"],
            {"lengths": ints(1, 1), "length_per_key": [3, -1]},
            ["feature 'b':", "values, got -1"],
        ),
        "negative-stride-of-a-variable-batch": (
            ["a"],
            TWO | {"stride": -1, "stride_per_key_per_rank": [[1]]},
            ["stride:", "got -1"],
        ),
        "stride-below-that-of-a-key": (
            ["a", "b"],
            {"lengths": ints(1, 0, 1), "stride": 1, "stride_per_key_per_rank": [[2], [1]]},
            ["stride: expected at least 2", "got 1"],
        ),
        "stride-that-inverse-indices-contradict": (
            ["a"],
            {
                **TWO,
                "stride": 2,
                "stride_per_key_per_rank": [[1]],
                "inverse_indices": (["a"], zeros(1, 3)),
            },
            ["stride: expected 3", "got 2"],
        ),
        "strides-of-more-keys": (
            ["a"],
            TWO | {"stride_per_key_per_rank": [[1], [1]]},
            ["stride_per_key_per_rank: expected 1 keys, got 2"],
        ),
        "negative-stride-of-a-key": (
            ["a", "b"],
            {"lengths": ints(1, 1), "stride_per_key_per_rank": [[3], [-1]]},
            ["feature 'b':", "examples, got -1"],
        ),
    },
)
def test_a_keyed_jagged_tensor_refuses(keys, arguments, parts):
    with refused(InputError, *parts):
        KeyedJaggedTensor(keys, ints(1, 2), **arguments)


def keyed(*lengths):
    return KeyedJaggedTensor(["a", "b"], ints(1, 2, 3), lengths=ints(*lengths))


def of_offsets(*offsets):
    return KeyedJaggedTensor.from_offsets_sync(["a", "b"], ints(1, 2, 3), ints(*offsets))


SHORT = ["sum of lengths: expected 3", "got 2"]


@cases(
    ("call", "parts"),
    {
        "length_per_key": (lambda: keyed(1, 1).length_per_key(), SHORT),
        "split": (lambda: keyed(1, 1).split([1, 1]), SHORT),
        "permute": (lambda: keyed(1, 1).permute([1, 0]), SHORT),
        "key": (lambda: keyed(1, 1)["a"], SHORT),
        "to_dict": (lambda: keyed(1, 1).to_dict(), SHORT),
        "negative-length-before-the-sum": (
            lambda: keyed(1, 1, 2, -2).length_per_key(),
            ["feature 'b', example 1:", "got -2"],
        ),
        "from-lengths": (
            lambda: KeyedJaggedTensor.from_lengths_sync(["a", "b"], ints(1, 2, 3), ints(2, 2)),
            ["sum of lengths: expected 3", "got 4"],
        ),
        "from-offsets": (lambda: of_offsets(0, 2, 4), ["sum of lengths: expected 3", "got 4"]),
        "from-offsets-that-begin-later": (lambda: of_offsets(1, 2, 4), ["offsets:", "0, got 1"]),
        "from-offsets-that-fall": (lambda: of_offsets(0, 4, 3), ["feature 'b':", "got -1"]),
    },
)
def test_contents_that_contradict_are_refused_when_read(call, parts):
    with refused(InputError, *parts):
        call()


def weighted(keys, stride=1):
    lengths = torch.zeros(len(keys) * stride, dtype=torch.int32)
    return KeyedJaggedTensor(keys, ints(), torch.empty(0), lengths=lengths)


PLAIN = KeyedJaggedTensor(["b"], ints(), lengths=ints(0))


def variable(key, inverse=None):
    return KeyedJaggedTensor(
        [key],
        ints(),
        torch.empty(0),
        lengths=ints(0),
        stride_per_key_per_rank=[[1]],
        inverse_indices=None if inverse is None else ([key], inverse),
    )


@cases(
    ("kjts", "parts"),
    {
        "none": ([], ["got 0"]),
        "strides": ([weighted(["a"]), weighted(["b"], stride=2)], ["['b']: expected 1", "got 2"]),
        "key-twice": ([weighted(["a"]), weighted(["b", "a"])], ["got 'a' at 0 and 2"]),
        "weights-in-one": ([weighted(["a"]), PLAIN], ["['b']: expected weights"]),
        "variable-in-one": (
            [variable("a"), weighted(["b"])],
            ["['b']: expected stride_per_key_per_rank"],
        ),
        "inverse-in-one": (
            [variable("a", zeros(1, 1)), variable("b")],
            ["['b']: expected inverse_indices"],
        ),
        "inverse-examples": (
            [variable("a", zeros(1, 1)), variable("b", zeros(1, 2))],
            ["['b']: inverse_indices: expected [1]", "got [2]"],
        ),
    },
)
def test_tensors_that_do_not_join_are_refused(kjts, parts):
    with refused(InputError, *parts):
        KeyedJaggedTensor.concat(kjts)


def padded(*lengths, width=None, padding=0.0):
    values = ints(*(1 for _ in range(sum(lengths))))
    return JaggedTensor(values, lengths=ints(*lengths)).to_padded_dense(width, padding)


TWO_KEYS, TABLE = weighted(["a", "b"]), torch.zeros(2, 3)


@cases(
    ("call", "parts"),
    {
        "split-too-few": (lambda: TWO_KEYS.split([1]), ["split:", "2 keys, got 1"]),
        "split-negative": (lambda: TWO_KEYS.split([3, -1]), ["split:", "at 1, got -1"]),
        "split-inverse-rows": (
            lambda: variable("a", ints(0, 0)).split([1]),
            ["inverse_indices:", "['a']", "got shape [2]"],
        ),
        "permute-past-the-end": (lambda: TWO_KEYS.permute([0, 2]), ["permute:", "got 2 at 1"]),
        "permute-negative": (lambda: TWO_KEYS.permute([-1]), ["permute:", "got -1 at 0"]),
        "table-of-lengths": (
            lambda: JaggedTensor(ints(1, 2), lengths=ints(1, 1).view(1, 2)),
            ["got shape [1, 2]"],
        ),
        "from-dense-of-none": (lambda: JaggedTensor.from_dense([]), ["got 0"]),
        "from-dense-weights": (
            lambda: JaggedTensor.from_dense([ints(1), ints(2)], [torch.ones(1)]),
            ["weights of lengths [1, 1], got [1]"],
        ),
        "from-dense-lengths-of-a-list": (
            lambda: JaggedTensor.from_dense_lengths(ints(1), ints(1)),
            ["values", "got shape [1]"],
        ),
        "from-dense-lengths-too-few": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(1)),
            ["2 lengths, got shape [1]"],
        ),
        "from-dense-lengths-past-the-row": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(3, 4)),
            ["0..3, got 4 at example 1"],
        ),
        "from-dense-lengths-negative": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(-1, 4)),
            ["got -1 at example 0"],
        ),
        "from-dense-lengths-weights": (
            lambda: JaggedTensor.from_dense_lengths(TABLE, ints(1, 1), TABLE[:1]),
            ["weights [2, 3], got shape [1, 3]"],
        ),
        "to-dense": (
            lambda: JaggedTensor(ints(1, 2), lengths=ints(1)).to_dense(),
            ["sum of lengths: expected 2", "got 1"],
        ),
        "padded-width": (lambda: padded(1, width=-1), ["desired_length:", "got -1"]),
        "padded-to-a-negative-length": (lambda: padded(-2, -1), ["lengths:", "up to -1"]),
        "padding-of-integers": (
            lambda: padded(1, width=2, padding=0.5),
            ["padding_value:", "got 0.5"],
        ),
        "padding-of-integers-nan": (
            lambda: padded(1, width=2, padding=float("nan")),
            ["padding_value:", "got nan"],
        ),
    },
)
def test_impossible_calls_are_refused(call, parts):
    with refused(InputError, *parts):
        call()
