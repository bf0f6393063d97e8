"""JaggedTensor: each method against values written by hand."""

import pytest
import torch
from torch.testing import assert_close

from embershard.errors import InputError
from embershard.jagged import JaggedTensor, jt_is_equal
from tests.cases import cases, refused

# [10, 11], [], [12]
VALUES = torch.tensor([10, 11, 12])
WEIGHTS = torch.tensor([0.5, 1.5, 2.5])
LENGTHS = torch.tensor([2, 0, 1], dtype=torch.int32)
OFFSETS = torch.tensor([0, 2, 2, 3], dtype=torch.int32)


@pytest.fixture(params=["lengths", "offsets"])
def jagged(request):
    index = {"lengths": LENGTHS} if request.param == "lengths" else {"offsets": OFFSETS}
    return JaggedTensor(VALUES, WEIGHTS, **index)


def same(actual, expected):
    assert_close(actual, expected, rtol=0, atol=0)


def test_tensors_are_kept_not_copied():
    jagged = JaggedTensor(VALUES, WEIGHTS, lengths=LENGTHS)
    assert jagged.values() is VALUES
    assert jagged.weights() is WEIGHTS
    assert jagged.lengths() is LENGTHS
    assert jagged.device() == torch.device("cpu")


def test_lengths_and_offsets_follow_from_each_other(jagged):
    same(jagged.lengths(), LENGTHS)
    same(jagged.offsets(), OFFSETS)


def test_what_was_not_given_is_none_until_asked_for():
    by_lengths = JaggedTensor(VALUES, lengths=LENGTHS)
    assert by_lengths.lengths_or_none() is LENGTHS
    assert by_lengths.offsets_or_none() is None
    assert by_lengths.offsets() is by_lengths.offsets_or_none()

    by_offsets = JaggedTensor(VALUES, offsets=OFFSETS)
    assert by_offsets.offsets_or_none() is OFFSETS
    assert by_offsets.lengths_or_none() is None
    assert by_offsets.lengths() is by_offsets.lengths_or_none()


def test_offsets_of_int64_lengths_are_int64():
    assert JaggedTensor(VALUES, lengths=LENGTHS.long()).offsets().dtype == torch.int64


def test_offsets_past_int32_are_int64():
    values = torch.empty(2**31, dtype=torch.uint8, device="meta")
    lengths = torch.empty(3, dtype=torch.int32, device="meta")
    assert JaggedTensor(values, lengths=lengths).offsets().dtype == torch.int64
    assert JaggedTensor(values[1:], lengths=lengths).offsets().dtype == torch.int32


def test_weights_of_an_unweighted_tensor():
    unweighted = JaggedTensor(VALUES, lengths=LENGTHS)
    assert unweighted.weights_or_none() is None
    with refused(InputError, "weights:", "weighted JaggedTensor"):
        unweighted.weights()


def test_to_dense_cuts_into_examples(jagged):
    same(jagged.to_dense(), [torch.tensor([10, 11]), VALUES[:0], torch.tensor([12])])
    same(jagged.to_dense_weights(), [torch.tensor([0.5, 1.5]), WEIGHTS[:0], torch.tensor([2.5])])


def test_to_padded_dense_weights(jagged):
    expected = torch.tensor([[0.5, 1.5], [9.0, 9.0], [2.5, 9.0]])
    same(jagged.to_padded_dense_weights(padding_value=9.0), expected)


def test_to_padded_dense_of_vectors_and_its_gradient():
    vectors = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    padded = JaggedTensor(vectors, lengths=LENGTHS).to_padded_dense(1)
    same(padded, torch.tensor([[[1.0, 2.0]], [[0.0, 0.0]], [[5.0, 6.0]]]))

    padded.sum().backward()

    same(vectors.grad, torch.tensor([[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize("examples", [0, 2])
def test_backward_reaches_values_of_which_there_are_none(examples):
    values, reached = torch.zeros(0, 4, requires_grad=True), []
    looked_up = values * 1
    looked_up.register_hook(reached.append)
    jagged = JaggedTensor(looked_up, lengths=torch.zeros(examples, dtype=torch.int64))
    jagged.to_padded_dense(3).sum().backward()
    assert len(reached) == 1


def test_to_padded_dense_of_a_given_width_reads_no_contents():
    jagged = JaggedTensor(VALUES.to("meta"), lengths=LENGTHS.to("meta"))
    assert jagged.to_padded_dense(5).shape == (3, 5)


def test_from_dense():
    jagged = JaggedTensor.from_dense(
        [torch.tensor([10, 11]), VALUES[:0], torch.tensor([12])],
        [torch.tensor([0.5, 1.5]), WEIGHTS[:0], torch.tensor([2.5])],
    )
    same(jagged.values(), VALUES)
    same(jagged.weights(), WEIGHTS)
    same(jagged.lengths(), LENGTHS)


def test_from_dense_lengths():
    jagged = JaggedTensor.from_dense_lengths(
        torch.tensor([[10, 11], [0, 0], [12, 0]]),
        LENGTHS,
        torch.tensor([[0.5, 1.5], [0.0, 0.0], [2.5, 0.0]]),
    )
    same(jagged.values(), VALUES)
    same(jagged.weights(), WEIGHTS)
    same(jagged.lengths(), LENGTHS)


def test_empty():
    plain = JaggedTensor.empty(values_dtype=torch.int64, lengths_dtype=torch.int64)
    same(plain.values(), torch.empty(0, dtype=torch.int64))
    same(plain.lengths(), torch.empty(0, dtype=torch.int64))
    same(plain.offsets(), torch.tensor([0]))
    assert plain.weights_or_none() is None
    assert plain.to_dense() == []

    weighted = JaggedTensor.empty(is_weighted=True, weights_dtype=torch.float16)
    same(weighted.weights(), torch.empty(0, dtype=torch.float16))


def test_to_another_device_keeps_what_it_was_built_from(jagged):
    moved = jagged.to(torch.device("meta"), non_blocking=True)
    assert moved.device().type == moved.weights().device.type == moved.lengths().device.type
    assert moved.device().type == "meta"
    same(jagged.lengths(), LENGTHS)


def test_to_the_same_device_shares_the_tensors():
    moved = JaggedTensor(VALUES, WEIGHTS, lengths=LENGTHS).to(torch.device("cpu"))
    assert moved.values() is VALUES
    assert moved.weights() is WEIGHTS
    assert moved.lengths() is LENGTHS


@cases(
    ("other", "equal"),
    {
        "offsets": (JaggedTensor(VALUES.clone(), WEIGHTS, offsets=OFFSETS), True),
        "lengths-dtype": (JaggedTensor(VALUES, WEIGHTS, LENGTHS.long()), True),
        "values-dtype": (JaggedTensor(VALUES.int(), WEIGHTS, LENGTHS), False),
        "values": (JaggedTensor(VALUES + 1, WEIGHTS, LENGTHS), False),
        "weights": (JaggedTensor(VALUES, WEIGHTS + 1, LENGTHS), False),
        "unweighted": (JaggedTensor(VALUES, None, LENGTHS), False),
        "lengths": (JaggedTensor(VALUES, WEIGHTS, LENGTHS.flip(0)), False),
        "examples": (JaggedTensor(VALUES, WEIGHTS, torch.tensor([3])), False),
        "device": (JaggedTensor(VALUES, WEIGHTS, LENGTHS).to(torch.device("meta")), False),
    },
)
def test_jt_is_equal(other, equal):
    assert jt_is_equal(JaggedTensor(VALUES, WEIGHTS, lengths=LENGTHS), other) is equal
    assert jt_is_equal(other, JaggedTensor(VALUES, WEIGHTS, lengths=LENGTHS)) is equal


def test_repr_tells_sizes_not_contents():
    text = repr(JaggedTensor(VALUES, WEIGHTS, lengths=LENGTHS))
    assert text == "JaggedTensor(examples=3, values=torch.int64[3], weighted=True)"


def test_str_shows_the_lists():
    lengths = torch.tensor([2, 0, 1])
    plain = JaggedTensor(torch.tensor([1, 2, 3]), lengths=lengths)
    assert str(plain) == "JaggedTensor([[1, 2], [], [3]])"
    assert f"{plain}" == str(plain)
    nested = JaggedTensor(torch.tensor([[1.0, 2.0], [3.0, 4.5]]), lengths=torch.tensor([1, 1]))
    assert str(nested) == "JaggedTensor([[[1, 2]], [[3, 4.5]]])"


def test_str_tells_lengths_that_do_not_fit():
    assert "got 3" in str(JaggedTensor(torch.tensor([1, 2]), lengths=torch.tensor([3])))


def test_str_of_meta_tensors_is_their_repr():
    moved = JaggedTensor(torch.tensor([1]), lengths=torch.tensor([1])).to(torch.device("meta"))
    assert str(moved) == repr(moved)


@cases(
    ("width", "padding", "expected"),
    {
        "as-wide-as-the-longest": (None, 0.0, [[10, 11], [0, 0], [12, 0]]),
        "wider": (3, -1.0, [[10, 11, -1], [-1, -1, -1], [12, -1, -1]]),
        "narrower-keeps-the-first": (1, 0.0, [[10], [0], [12]]),
        "no-columns": (0, 0.0, [[], [], []]),
    },
)
def test_to_padded_dense(jagged, width, padding, expected):
    same(jagged.to_padded_dense(width, padding), torch.tensor(expected, dtype=torch.int64))


@pytest.mark.parametrize("examples", [0, 2])
def test_to_padded_dense_without_any_value(examples):
    lengths = torch.zeros(examples, dtype=torch.int32)
    jagged = JaggedTensor(torch.empty(0), lengths=lengths)
    assert jagged.to_padded_dense().shape == (examples, 0)
    same(jagged.to_padded_dense(2, 7.0), torch.full((examples, 2), 7.0))
