"""Checks and compares the contents of jagged tensors."""

from bisect import bisect_right

import torch
from torch import Tensor

from embershard.errors import InputError
from embershard.jagged.checks import jagged_fault, keys_fault, stride_fault
from embershard.jagged.jagged_tensor import JaggedTensor
from embershard.jagged.keyed_jagged_tensor import KeyedJaggedTensor
from embershard.jagged.segments import counts_at


def validate_keyed_jagged_tensor(kjt: KeyedJaggedTensor) -> None:
    """Refuse a batch with contradictory contents. Reads all lengths or offsets: waits for the
    device.

    Lengths must not be negative; offsets must begin at 0 and never fall; both must lead to the
    number of values, and agree if both are there. Repeats the constructor's checks, for objects
    that were built without it. Raises InputError, which names feature and example.
    """
    keys, values, stride = kjt.keys(), kjt.values(), kjt.stride()
    strides = kjt.stride_per_key() if kjt.variable_stride_per_key() else None
    lengths, offsets = kjt.lengths_or_none(), kjt.offsets_or_none()
    inverse = kjt.inverse_indices_or_none()
    _refuse(keys_fault(keys))
    if lengths is not None:
        _refuse(jagged_fault(values, kjt.weights_or_none(), lengths, None))
        _refuse(stride_fault(keys, values, lengths, None, stride, strides, None, inverse)[0])
        _refuse(_lengths_fault(kjt, lengths))
    if offsets is not None:
        _refuse(jagged_fault(values, kjt.weights_or_none(), None, offsets))
        _refuse(stride_fault(keys, values, None, offsets, stride, strides, None, inverse)[0])
        _refuse(_offsets_fault(kjt, offsets))
        if lengths is not None:
            _refuse(_agreement_fault(kjt, lengths, offsets.diff()))
    _refuse(_counts_fault(kjt))


def _refuse(fault: str) -> None:
    if fault:
        raise InputError(f"KeyedJaggedTensor {fault}")


def _lengths_fault(kjt: KeyedJaggedTensor, lengths: Tensor) -> str:
    at = _first(lengths < 0)
    if at is not None:
        return f"{_where(kjt, at)}: expected a length of at least 0, got {int(lengths[at])}"
    total = kjt.values().size(0)
    lengths_sum = int(lengths.sum())  # The sum is int64 for all dtypes.
    if lengths_sum != total:
        return f"sum of lengths: expected {total}, the number of values, got {lengths_sum}"
    return ""


def _offsets_fault(kjt: KeyedJaggedTensor, offsets: Tensor) -> str:
    if int(offsets[0]) != 0:
        return f"offsets: expected the first to be 0, got {int(offsets[0])}"
    at = _first(offsets[1:] < offsets[:-1])
    if at is not None:
        begin, end = offsets[at : at + 2].tolist()
        return f"{_where(kjt, at)}: expected offsets that never fall, got {begin}, {end}"
    total = kjt.values().size(0)
    if int(offsets[-1]) != total:
        return (
            f"offsets: expected the last to be {total}, the number of values, "
            f"got {int(offsets[-1])}"
        )
    return ""


def _agreement_fault(kjt: KeyedJaggedTensor, lengths: Tensor, expected: Tensor) -> str:
    at = _first(lengths != expected)
    if at is None:
        return ""
    return (
        f"{_where(kjt, at)}: expected length {int(expected[at])}, "
        f"from the offsets, got {int(lengths[at])}"
    )


def _counts_fault(kjt: KeyedJaggedTensor) -> str:
    counts = kjt.length_per_key_or_none()
    if counts is None:
        return ""
    actual = counts_at(kjt.offsets(), kjt.lengths_offset_per_key())
    if counts != actual:
        return f"length_per_key: expected {actual}, the sums of the lengths, got {counts}"
    return ""


def _first(mask: Tensor) -> int | None:
    positions = torch.nonzero(mask)
    return int(positions[0]) if positions.numel() else None


def _where(kjt: KeyedJaggedTensor, at: int) -> str:
    """Feature and example of a length, for messages."""
    begins = kjt.lengths_offset_per_key()
    key = bisect_right(begins, at) - 1
    return f"feature '{kjt.keys()[key]}', example {at - begins[key]}"


def jt_is_equal(jt_1: JaggedTensor, jt_2: JaggedTensor) -> bool:
    """Compare values, lengths and weights bit by bit, and dtype and device of values. Being built
    from lengths or from offsets, and their integer dtype, make no difference."""
    return (
        _same(jt_1.values(), jt_2.values())
        and _same(jt_1.lengths().to(torch.int64), jt_2.lengths().to(torch.int64))
        and _same_or_none(jt_1.weights_or_none(), jt_2.weights_or_none())
    )


def kjt_is_equal(kjt_1: KeyedJaggedTensor, kjt_2: KeyedJaggedTensor) -> bool:
    """Compare keys, their order, their numbers of examples, and contents as ``jt_is_equal`` does.
    Inverse indices are not compared."""
    return (
        kjt_1.keys() == kjt_2.keys()
        and kjt_1.stride() == kjt_2.stride()
        and kjt_1.stride_per_key() == kjt_2.stride_per_key()
        and _same(kjt_1.values(), kjt_2.values())
        and _same(kjt_1.lengths().to(torch.int64), kjt_2.lengths().to(torch.int64))
        and _same_or_none(kjt_1.weights_or_none(), kjt_2.weights_or_none())
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


def _same_or_none(a: Tensor | None, b: Tensor | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return _same(a, b)
