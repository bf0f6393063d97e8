"""Converts lists, numpy arrays and tensors to flat arrays with the types of the wire format.

Does not import torch: numpy converts a CPU tensor with the tensor's ``__array__``.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from embershard import ids
from embershard.errors import RequestError

Int32Array: TypeAlias = npt.NDArray[np.int32]
Int64Array: TypeAlias = npt.NDArray[np.int64]
Float32Array: TypeAlias = npt.NDArray[np.float32]
Array: TypeAlias = npt.NDArray[Any]

Convert: TypeAlias = Callable[[str, Any], Array]

INT32_MAX = (1 << 31) - 1

SCALARS = frozenset({int, float, str})
LISTS = frozenset({list, tuple})


class Lists(NamedTuple):
    """Jagged lists in flat form, which are converted without a loop in Python."""

    lengths: npt.ArrayLike
    """Integers, shape ``(num_lists,)``."""

    values: npt.ArrayLike
    """Ids, integers or strings, shape ``(sum of lengths,)``."""


class FlatLists(NamedTuple):
    lengths: Int32Array  # (num_lists,)
    values: Array  # (sum of lengths,), in the type of the conversion.
    nested: bool  # False if the input had single values, each of which is a list.


def flatten(name: str, lists: object, convert: Convert) -> FlatLists:
    """Concatenate the lists of an input. Raises RequestError for ``lists`` of another form.

    Args:
        name: name of the input, for messages.
        lists: :class:`Lists`, an array ``(num_lists,)`` with one value per list, an array
            ``(num_lists, k)``, a sequence of values or of sequences of values, or one value.
        convert: converts the values to an array.
    """
    if isinstance(lists, Lists):
        return _from_parts(name, lists, convert)
    if isinstance(lists, Sequence) and not isinstance(lists, (str, bytes)):
        return _from_items(name, lists, convert)
    return _from_array(name, array_of(name, lists), convert)


def ids_of(name: str, values: list[Any] | tuple[Any, ...] | Array) -> Int64Array:
    """Convert ids to an array ``(n,)`` of 64 bits. ``name`` is the input, for messages."""
    return ids.ids_of(f"feature {name!r}", values, RequestError)


def floats_of(name: str, values: object) -> Float32Array:
    """Convert values to float32 in the same shape. Raises RequestError for other types."""
    array = array_of(name, values)
    if array.dtype.kind not in "biuf":
        raise RequestError(f"input {name!r}: expected numbers, got {values!r:.80}")
    with np.errstate(over="ignore"):  # The server refuses infinities and reports their position.
        return array.astype(np.float32, copy=False)


def array_of(name: str, values: object) -> Array:
    """Convert values to an array. Raises RequestError for ragged rows, tensors on a GPU and masked
    values."""
    if np.ma.is_masked(values):  # The converted array would contain the masked values.
        raise RequestError(f"input {name!r}: expected values without a mask, got masked ones")
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RequestError(
            f"input {name!r}: expected values for a numpy array, got {values!r:.80}: {error}"
        ) from error


def _from_items(name: str, items: Sequence[Any], convert: Convert) -> FlatLists:
    kinds = set(map(type, items))
    if kinds <= SCALARS:
        lengths, values, nested = _ones(len(items)), list(items), False
    elif kinds <= LISTS:
        lengths, values, nested = *_joined(items), True
    else:
        lengths, values, nested = _joined_arrays(name, items)
    converted = convert(name, values)
    _check_dimensions(name, converted, most=1)
    return FlatLists(lengths, converted, nested)


def _joined(lists: Sequence[Sequence[Any]]) -> tuple[Int32Array, list[Any]]:
    """The lengths of lists, and a list of all their values."""
    try:  # Lists of one value are the most frequent. This takes half the time for them.
        return _ones(len(lists)), [value for (value,) in lists]
    except ValueError:
        lengths = np.array(list(map(len, lists)), dtype=np.int32)
        return lengths, list(itertools.chain.from_iterable(lists))


@functools.lru_cache(maxsize=8)
def _ones(count: int) -> Int32Array:
    """Lengths of lists of one value, read-only."""
    ones = np.ones(count, np.int32)
    ones.setflags(write=False)
    return ones


def _joined_arrays(name: str, items: Sequence[Any]) -> tuple[Int32Array, list[Any], bool]:
    """Join items of any type like `_joined`. Also returns True if one of them is a list."""
    nested = False
    lists: list[Sequence[Any]] = []
    for item in items:
        if isinstance(item, (list, tuple)):
            lists.append(item)
            nested = True
        elif isinstance(item, (int, float, str)):
            lists.append([item])
        else:
            array = array_of(name, item)
            _check_dimensions(name, array, most=1)
            lists.append(array.reshape(-1).tolist())
            nested = nested or array.ndim == 1
    return *_joined(lists), nested


def _from_array(name: str, array: Array, convert: Convert) -> FlatLists:
    _check_dimensions(name, array, most=2)
    nested = array.ndim == 2
    rows = array if nested else array.reshape(-1, 1)
    lengths = np.full(rows.shape[0], rows.shape[1], dtype=np.int32)
    return FlatLists(lengths, convert(name, rows.reshape(-1)), nested)


def _from_parts(name: str, lists: Lists, convert: Convert) -> FlatLists:
    lengths = array_of(name, lists.lengths)
    if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu"):
        raise RequestError(
            f"feature {name!r}: expected integer lengths of 1 dimension, "
            f"got {lengths.dtype} of shape {lengths.shape}"
        )
    if lengths.size and int(lengths.min()) < 0:
        raise RequestError(
            f"feature {name!r}: length {int(lengths.min())} at list "
            f"{int(lengths.argmin())} is negative"
        )
    if lengths.size and int(lengths.max()) > INT32_MAX:  # The sum might overflow.
        raise RequestError(
            f"feature {name!r}: expected lengths of at most {INT32_MAX}, got {int(lengths.max())} "
            f"at list {int(lengths.argmax())}"
        )
    is_list = isinstance(lists.values, (list, tuple))
    values = convert(name, lists.values if is_list else array_of(name, lists.values))
    _check_dimensions(name, values, most=1)
    if int(lengths.sum()) != values.size:
        raise RequestError(
            f"feature {name!r}: lengths sum to {int(lengths.sum())}, "
            f"but there are {values.size} values"
        )
    return FlatLists(lengths.astype(np.int32), values.reshape(-1), nested=True)


def _check_dimensions(name: str, array: Array, *, most: int) -> None:
    if array.ndim > most:
        raise RequestError(
            f"feature {name!r}: expected at most {most} dimensions, got shape {array.shape}"
        )
