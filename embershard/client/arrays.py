"""From what people hold (lists, numpy, torch) to flat arrays in the wire's types.

Nothing here imports torch: a CPU tensor reaches numpy through ``__array__``.
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
"""`ids_of` or `floats_of`."""

INT32_MAX = (1 << 31) - 1

SCALARS = frozenset({int, float, str})
LISTS = frozenset({list, tuple})


class Lists(NamedTuple):
    """Jagged lists in flat form, for callers who have them so: nothing is looped over."""

    lengths: npt.ArrayLike
    """Integers, shape ``(num_lists,)``."""

    values: npt.ArrayLike
    """Ids, integers or strings, shape ``(sum of lengths,)``."""


class FlatLists(NamedTuple):
    lengths: Int32Array  # (num_lists,)
    values: Array  # (sum of lengths,), of the type that the conversion gives
    nested: bool  # Whether lists were given, rather than values of one list each.


def flatten(name: str, lists: object, convert: Convert) -> FlatLists:
    """Concatenate lists of the input ``name``: :class:`Lists`; an array ``(num_lists,)`` of one
    value each or ``(num_lists, k)``; a sequence of which each element is one value or a sequence of
    values; or one value. ``convert`` makes an array of the values. `RequestError`: of another
    form."""
    if isinstance(lists, Lists):
        return _from_parts(name, lists, convert)
    if isinstance(lists, Sequence) and not isinstance(lists, (str, bytes)):
        return _from_items(name, lists, convert)
    return _from_array(name, array_of(name, lists), convert)


def ids_of(name: str, values: list[Any] | tuple[Any, ...] | Array) -> Int64Array:
    """Ids ``(n,)`` as 64 bits. ``name``: the input, for messages."""
    return ids.ids_of(f"feature {name!r}", values, RequestError)


def floats_of(name: str, values: object) -> Float32Array:
    """Float32, of the shape that the values have."""
    array = array_of(name, values)
    if array.dtype.kind not in "biuf":
        raise RequestError(f"input {name!r}: expected numbers, got {values!r:.80}")
    with np.errstate(over="ignore"):  # Infinity is the server's to refuse, with its place.
        return array.astype(np.float32, copy=False)


def array_of(name: str, values: object) -> Array:
    """Any array, or a refusal of what numpy cannot hold: ragged rows, tensors on a GPU, holes."""
    if np.ma.is_masked(values):  # Its array would hold what lies under the mask.
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
    """The lengths of lists, and their values in one list."""
    try:  # Lists of one value are the most frequent, and take half the time like this.
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
    """Joins items of any type like `_joined`. Also returns True if one of them is a list."""
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
            f"feature {name!r}: expected lengths that are integers of 1 dimension, "
            f"got {lengths.dtype} of shape {lengths.shape}"
        )
    if lengths.size and int(lengths.min()) < 0:
        raise RequestError(
            f"feature {name!r}: length {int(lengths.min())} at list "
            f"{int(lengths.argmin())} is negative"
        )
    if lengths.size and int(lengths.max()) > INT32_MAX:  # Their sum might begin at 0 again.
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
            f"feature {name!r}: expected at most {most} dimensions there, got shape {array.shape}"
        )
