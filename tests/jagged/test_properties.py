"""Jagged tensors against lists of lists, over random shapes with empty bags, keys and batches."""

from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from embershard.jagged import JaggedTensor, KeyedJaggedTensor, validate_keyed_jagged_tensor

# Only pytest's timeout applies, since the first call of a torch function is slow.
unhurried = settings(deadline=None)

Bags = list[list[int]]  # one list of ids for each example


@st.composite
def batches(draw, keys="abcde"):
    """Draws {key: one list of ids for each example} and the number of examples, equal for all
    keys."""
    names = draw(st.permutations(keys).map(list))[: draw(st.integers(0, len(keys)))]
    examples = draw(st.integers(0, 4))
    bag = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)
    bags = st.lists(bag, min_size=examples, max_size=examples)
    return {name: draw(bags) for name in names}, examples


def pack(batch: dict[str, Bags], examples: int, by_offsets: bool = False) -> KeyedJaggedTensor:
    """Packs a batch. Each weight is the position of its value and so proves where values came
    from."""
    bags = [bag for key in batch for bag in batch[key]]
    values = torch.tensor([value for bag in bags for value in bag], dtype=torch.int64)
    weights = torch.arange(len(values), dtype=torch.float64)
    lengths = [len(bag) for bag in bags]
    if by_offsets:
        offsets = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        return KeyedJaggedTensor(
            list(batch), values, weights, offsets=torch.tensor(offsets), stride=examples
        )
    index = torch.tensor(lengths, dtype=torch.int32)
    return KeyedJaggedTensor(list(batch), values, weights, lengths=index, stride=examples)


def unpack(kjt: KeyedJaggedTensor) -> dict[str, Bags]:
    """Unpacks by the definition of the layout. Calls only methods that return its tensors."""
    values, lengths = kjt.values().tolist(), kjt.lengths().tolist()
    batch: dict[str, Bags] = {}
    for position, key in enumerate(kjt.keys()):
        batch[key] = []
        for example in range(kjt.stride()):
            slot = position * kjt.stride() + example
            begin = sum(lengths[:slot])
            batch[key].append(values[begin : begin + lengths[slot]])
    return batch


def values_of_weights(
    part: KeyedJaggedTensor | JaggedTensor, packed: KeyedJaggedTensor
) -> list[int]:
    return packed.values()[part.weights().long()].tolist()


@unhurried
@given(batches(), st.booleans())
def test_what_is_packed_is_valid_and_reads_back(drawn, by_offsets):
    batch, examples = drawn
    kjt = pack(batch, examples, by_offsets)
    validate_keyed_jagged_tensor(kjt)
    assert unpack(kjt) == batch


@unhurried
@given(batches(), st.booleans(), st.data())
def test_permute_selects_keys_in_order(drawn, by_offsets, data):
    batch, examples = drawn
    order = data.draw(st.permutations(range(len(batch))).map(list))
    order = order[: data.draw(st.integers(0, len(order)))]
    packed = pack(batch, examples, by_offsets)

    kjt = packed.permute(order)

    validate_keyed_jagged_tensor(kjt)
    assert list(unpack(kjt).items()) == [list(batch.items())[i] for i in order]
    assert kjt.stride() == examples
    assert kjt.length_per_key_or_none() == [sum(map(len, bags)) for bags in unpack(kjt).values()]
    assert values_of_weights(kjt, packed) == kjt.values().tolist()


@unhurried
@given(batches(), st.booleans(), st.data())
def test_split_cuts_keys_into_groups(drawn, by_offsets, data):
    batch, examples = drawn
    inner = data.draw(st.lists(st.integers(0, len(batch)), max_size=4).map(sorted))
    cuts = [0, *inner, len(batch)]
    packed = pack(batch, examples, by_offsets)

    groups = packed.split([end - begin for begin, end in pairwise(cuts)])

    items = list(batch.items())
    expected = [items[begin:end] for begin, end in pairwise(cuts)]
    assert [list(unpack(group).items()) for group in groups] == expected
    for group in groups:
        validate_keyed_jagged_tensor(group)
        assert group.stride() == examples
        assert values_of_weights(group, packed) == group.values().tolist()


@unhurried
@given(batches(), st.booleans())
def test_to_dict_and_keys_give_each_features_examples(drawn, by_offsets):
    batch, examples = drawn
    kjt = pack(batch, examples, by_offsets)
    features = kjt.to_dict()
    for jagged in features.values():
        assert values_of_weights(jagged, kjt) == jagged.values().tolist()
    dense = {key: [bag.tolist() for bag in jagged.to_dense()] for key, jagged in features.items()}
    assert dense == batch
    for key in batch:
        assert [bag.tolist() for bag in kjt[key].to_dense()] == batch[key]


@unhurried
@given(batches("abc"), batches("xyz"), st.booleans())
def test_concat_puts_keys_behind_each_other(first, second, by_offsets):
    examples = min(first[1], second[1])
    left, right = ({k: bags[:examples] for k, bags in d[0].items()} for d in (first, second))

    parts = [pack(left, examples, by_offsets), pack(right, examples, not by_offsets)]

    kjt = KeyedJaggedTensor.concat(parts)

    validate_keyed_jagged_tensor(kjt)
    assert kjt.weights().tolist() == [*parts[0].weights().tolist(), *parts[1].weights().tolist()]
    assert list(unpack(kjt).items()) == [*left.items(), *right.items()]


@unhurried
@given(batches(), st.booleans())
def test_from_jt_dict_undoes_to_dict(drawn, by_offsets):
    batch, examples = drawn
    packed = pack(batch, examples, by_offsets)
    kjt = KeyedJaggedTensor.from_jt_dict(packed.to_dict())
    assert unpack(kjt) == batch
    if batch:
        assert values_of_weights(kjt, packed) == kjt.values().tolist()


@unhurried
@given(
    st.lists(st.lists(st.integers(-9, 9), max_size=5), max_size=6),
    st.none() | st.integers(0, 7),
    st.integers(-3, 3),
)
def test_to_padded_dense_cuts_and_pads_each_row(bags, width, padding):
    lengths = torch.tensor([len(bag) for bag in bags], dtype=torch.int32)
    values = torch.tensor([value for bag in bags for value in bag], dtype=torch.int64)
    columns = width if width is not None else max(map(len, bags), default=0)

    padded = JaggedTensor(values, lengths=lengths).to_padded_dense(width, float(padding))

    assert padded.dtype == torch.int64
    assert padded.shape == (len(bags), columns)
    assert padded.tolist() == [(bag + [padding] * columns)[:columns] for bag in bags]


@unhurried
@given(st.lists(st.lists(st.integers(-9, 9), max_size=5), min_size=1, max_size=6))
def test_dense_and_padded_forms_lead_back(bags):
    jagged = JaggedTensor.from_dense([torch.tensor(bag, dtype=torch.int64) for bag in bags])
    assert [bag.tolist() for bag in jagged.to_dense()] == bags

    again = JaggedTensor.from_dense_lengths(jagged.to_padded_dense(), jagged.lengths())

    assert [bag.tolist() for bag in again.to_dense()] == bags
