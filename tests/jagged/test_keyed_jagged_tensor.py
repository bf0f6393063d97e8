"""KeyedJaggedTensor: each method against values written by hand."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import KeyedJaggedTensor, kjt_is_equal
from tests.cases import cases, refused

#            example 0   example 1   example 2
# "user"     [10, 11]    []          [12]
# "item"     [13]        [14]        [15, 16, 17]
# "empty"    []          []          []
KEYS = ["user", "item", "empty"]
VALUES = torch.arange(10, 18)
WEIGHTS = torch.arange(8) / 2
LENGTHS = torch.tensor([2, 0, 1, 1, 1, 3, 0, 0, 0], dtype=torch.int32)
OFFSETS = torch.tensor([0, 2, 2, 3, 4, 5, 8, 8, 8, 8], dtype=torch.int32)


@pytest.fixture(params=["lengths", "offsets"])
def kjt(request):
    index = {"lengths": LENGTHS} if request.param == "lengths" else {"offsets": OFFSETS}
    return KeyedJaggedTensor(KEYS, VALUES, WEIGHTS, **index)


def same(actual, expected):
    assert_close(actual, expected, rtol=0, atol=0)


def build(keys, values, lengths, weights=None, stride=None):
    return KeyedJaggedTensor(
        keys,
        torch.tensor(values, dtype=torch.int64),
        None if weights is None else torch.tensor(weights),
        lengths=torch.tensor(lengths, dtype=torch.int32),
        stride=stride,
    )


def test_sizes(kjt):
    assert kjt.keys() == KEYS
    assert kjt.stride() == 3
    assert kjt.device() == torch.device("cpu")
    assert kjt.lengths_offset_per_key() == [0, 3, 6, 9]
    assert kjt.index_per_key() == {"user": 0, "item": 1, "empty": 2}
    assert kjt.stride_per_key_per_rank() == [[3], [3], [3]]
    assert kjt.inverse_indices_or_none() is None
    with refused(InputError, "inverse_indices:"):
        kjt.inverse_indices()


def test_tensors_are_kept_not_copied():
    kjt = KeyedJaggedTensor(KEYS, VALUES, WEIGHTS, lengths=LENGTHS)
    assert kjt.values() is VALUES
    assert kjt.weights() is WEIGHTS
    assert kjt.weights_or_none() is WEIGHTS
    assert kjt.lengths() is LENGTHS


def test_keys_given_are_copied():
    keys = ["a"]
    kjt = build(keys, [1], [1])
    keys.append("b")
    assert kjt.keys() == ["a"]


def test_lengths_and_offsets_follow_from_each_other(kjt):
    same(kjt.lengths(), LENGTHS)
    same(kjt.offsets(), OFFSETS)


def test_what_was_not_given_is_none_until_asked_for():
    by_lengths = KeyedJaggedTensor(KEYS, VALUES, lengths=LENGTHS)
    assert by_lengths.lengths_or_none() is LENGTHS
    assert by_lengths.offsets_or_none() is None
    assert by_lengths.offsets() is by_lengths.offsets_or_none()

    by_offsets = KeyedJaggedTensor(KEYS, VALUES, offsets=OFFSETS)
    assert by_offsets.offsets_or_none() is OFFSETS
    assert by_offsets.lengths_or_none() is None
    assert by_offsets.lengths() is by_offsets.lengths_or_none()


def test_length_and_offset_per_key(kjt):
    assert kjt.length_per_key_or_none() is None
    assert kjt.offset_per_key_or_none() is None
    assert kjt.length_per_key() == [3, 5, 0]
    assert kjt.offset_per_key() == [0, 3, 8, 8]
    assert kjt.length_per_key_or_none() == [3, 5, 0]
    assert kjt.offset_per_key_or_none() == [0, 3, 8, 8]


@cases(
    "built",
    {
        "lengths": KeyedJaggedTensor.from_lengths_sync(KEYS, VALUES, LENGTHS, WEIGHTS),
        "offsets": KeyedJaggedTensor.from_offsets_sync(KEYS, VALUES, OFFSETS, WEIGHTS, stride=3),
    },
)
def test_sync_constructors_know_the_length_per_key(built):
    assert built.length_per_key_or_none() == [3, 5, 0]
    assert kjt_is_equal(built, KeyedJaggedTensor(KEYS, VALUES, WEIGHTS, lengths=LENGTHS))


def test_lengths_may_come_as_a_row_a_key():
    kjt = KeyedJaggedTensor(KEYS, VALUES, lengths=LENGTHS.view(3, 3))
    same(kjt.lengths(), LENGTHS)
    assert kjt.stride() == 3


def test_flatten_lengths_changes_nothing(kjt):
    assert kjt_is_equal(kjt.flatten_lengths(), kjt)
    assert kjt.flatten_lengths().lengths().dim() == 1


def test_building_and_splitting_by_known_counts_reads_nothing():
    kjt = KeyedJaggedTensor(
        KEYS,
        VALUES.to("meta"),
        WEIGHTS.to("meta"),
        lengths=LENGTHS.to("meta"),
        length_per_key=[3, 5, 0],
    )
    first, second = kjt.split([2, 1])
    assert first.length_per_key() == [3, 5]
    assert second.length_per_key() == [0]
    assert kjt.permute([1]).values().shape == (5,)
    assert kjt["item"].values().shape == (5,)


def test_a_key_gives_its_examples(kjt):
    item = kjt["item"]
    same(item.values(), torch.tensor([13, 14, 15, 16, 17]))
    same(item.weights(), torch.tensor([1.5, 2.0, 2.5, 3.0, 3.5]))
    same(item.lengths(), torch.tensor([1, 1, 3], dtype=torch.int32))
    same(item.offsets(), torch.tensor([0, 1, 2, 5], dtype=torch.int32))


def test_an_unknown_key_is_a_key_error_with_the_known_ones(kjt):
    with refused(KeyError, "'age'", KEYS):
        kjt["age"]


def test_unweighted_stays_unweighted():
    kjt = KeyedJaggedTensor(KEYS, VALUES, lengths=LENGTHS)
    assert kjt.weights_or_none() is None
    assert kjt["user"].weights_or_none() is None
    assert kjt.permute([1]).weights_or_none() is None
    assert kjt.split([3])[0].weights_or_none() is None
    with refused(InputError, "weights:", "KeyedJaggedTensor"):
        kjt.weights()


def test_split_gives_views(kjt):
    _, rest = kjt.split([1, 2])
    assert rest.values().data_ptr() == VALUES[3:].data_ptr()


def test_permute_repeats_a_key(kjt):
    device = torch.device("cpu")
    for twice in (kjt.permute([0, 2, 0]), kjt.permute([0, 2, 0]).to(device).permute([2, 1, 0])):
        assert twice.keys() == ["user", "empty", "user"]
        same(twice.values(), torch.tensor([10, 11, 12, 10, 11, 12]))
        same(twice.weights(), torch.tensor([0.0, 0.5, 1.0, 0.0, 0.5, 1.0]))
        assert twice.lengths().tolist() == [2, 0, 1, 0, 0, 0, 2, 0, 1]
        assert twice.length_per_key() == [3, 0, 3]
        assert [part.keys() for part in twice.split([2, 1])] == [["user", "empty"], ["user"]]
        same(twice["user"].values(), torch.tensor([10, 11, 12]))


def test_concat_knows_the_length_per_key_only_if_all_do():
    known = KeyedJaggedTensor.from_lengths_sync(["a"], VALUES[:1], LENGTHS[2:3])
    unknown = KeyedJaggedTensor(["b"], VALUES[:2], lengths=LENGTHS[:1])
    third = KeyedJaggedTensor.from_lengths_sync(["c"], VALUES[:2], LENGTHS[:1])
    assert KeyedJaggedTensor.concat([known, third]).length_per_key_or_none() == [1, 2]
    assert KeyedJaggedTensor.concat([known, unknown]).length_per_key_or_none() is None


def test_empty():
    empty = KeyedJaggedTensor.empty(is_weighted=True, values_dtype=torch.int64)
    assert empty.keys() == []
    assert empty.stride() == 0
    assert empty.length_per_key() == []
    assert empty.offset_per_key() == [0]
    assert empty.to_dict() == {}
    same(empty.values(), torch.empty(0, dtype=torch.int64))
    same(empty.weights(), torch.empty(0))
    same(empty.offsets(), torch.tensor([0], dtype=torch.int32))
    assert KeyedJaggedTensor.empty().weights_or_none() is None


def test_empty_like_keeps_stride_and_dtypes(kjt):
    empty = KeyedJaggedTensor.empty_like(kjt)
    assert kjt_is_equal(empty, build([], [], [], [], stride=3))
    assert empty.lengths().dtype == torch.int32
    assert kjt_is_equal(KeyedJaggedTensor.concat([kjt, empty]), kjt)


def test_keys_without_examples():
    none = build(["a", "b"], [], [])
    assert none.stride() == 0
    assert none.length_per_key() == [0, 0]
    assert none["b"].to_dense() == []
    offsets = KeyedJaggedTensor(["a", "b"], VALUES[:0], offsets=torch.tensor([0]))
    assert offsets.length_per_key() == [0, 0]


def test_to_another_device(kjt):
    kjt.length_per_key()
    moved = kjt.to(torch.device("meta"), non_blocking=True)
    assert moved.keys() == KEYS
    assert moved.stride() == 3
    assert moved.length_per_key_or_none() == [3, 5, 0]
    for tensor in (moved.values(), moved.weights(), moved.lengths(), moved.offsets()):
        assert tensor.device.type == "meta"


def test_to_converts_only_the_weights(kjt):
    moved = kjt.to(torch.device("cpu"), dtype=torch.float16)
    same(moved.weights(), WEIGHTS.half())
    assert moved.values() is VALUES


@cases(
    ("other", "equal"),
    {
        "itself": (build(["a", "b"], [1, 2], [1, 1], stride=1), True),
        "from-offsets": (
            KeyedJaggedTensor(["a", "b"], torch.tensor([1, 2]), offsets=torch.tensor([0, 1, 2])),
            True,
        ),
        "keys": (build(["b", "a"], [1, 2], [1, 1]), False),
        "values": (build(["a", "b"], [2, 1], [1, 1]), False),
        "lengths": (build(["a", "b"], [1, 2], [2, 0]), False),
        "weights": (build(["a", "b"], [1, 2], [1, 1], [1.0, 1.0]), False),
        "stride": (build(["a"], [1, 2], [1, 1]), False),
    },
)
def test_kjt_is_equal(other, equal):
    kjt = build(["a", "b"], [1, 2], [1, 1])
    assert kjt_is_equal(kjt, other) is equal
    assert kjt_is_equal(other, kjt) is equal


def test_strides_differ_where_no_lengths_tell():
    one, two = (build([], [], [], stride=stride) for stride in (1, 2))
    assert not kjt_is_equal(one, two)


def test_repr_tells_sizes_not_contents(kjt):
    assert repr(kjt) == (
        "KeyedJaggedTensor(keys=['user', 'item', 'empty'], stride=3, "
        "values=torch.int64[8], weighted=True)"
    )


def test_str_shows_the_lists_of_each_key():
    weighted = build(["a", "b"], [1, 2, 3], [2, 0, 0, 1], weights=[0.5, 1.0, 0.1])
    assert str(weighted) == (
        "KeyedJaggedTensor({\n"
        '    "a": {"values": [[1, 2], []], "weights": [[0.5, 1], []]},\n'
        '    "b": {"values": [[], [3]], "weights": [[], [0.1]]},\n'
        "})"
    )
    twice = build(["a", "b"], [1, 2, 3], [2, 0, 0, 1]).permute([1, 1])
    assert str(twice) == ('KeyedJaggedTensor({\n    "b": [[], [3]],\n    "b": [[], [3]],\n})')


def test_str_of_a_long_list_tells_its_length():
    assert str(build(["a"], [7] * 25, [25])).endswith("7, ... 25 in all]],\n})")


def test_str_tells_lengths_that_do_not_fit():
    text = str(build(["a"], [1, 2], [3]))
    assert text.startswith("KeyedJaggedTensor(keys=['a'], stride=1")
    assert "expected 2, the number of values, got 3" in text


def test_str_of_meta_tensors_is_their_repr(kjt):
    moved = kjt.to(torch.device("meta"))
    assert str(moved) == repr(moved)


def test_sync_counts_and_unsync_forgets(kjt):
    assert kjt.sync() is kjt
    assert kjt.length_per_key_or_none() == [3, 5, 0]
    assert kjt.unsync().length_per_key_or_none() is None


def test_weights_may_be_integers():
    assert KeyedJaggedTensor(KEYS, VALUES, VALUES, lengths=LENGTHS).weights() is VALUES


def test_concat(kjt):
    user, rest = kjt.split([1, 2])
    assert kjt_is_equal(KeyedJaggedTensor.concat([user, rest]), kjt)
    assert KeyedJaggedTensor.concat([rest, user]).keys() == ["item", "empty", "user"]


def test_lengths_and_offsets_may_both_be_given():
    both = KeyedJaggedTensor(KEYS, VALUES, WEIGHTS, lengths=LENGTHS, offsets=OFFSETS)
    assert both.lengths_or_none() is LENGTHS
    assert both.offsets_or_none() is OFFSETS
    assert both.length_per_key() == [3, 5, 0]
