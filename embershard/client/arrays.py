"""From what people hold (lists, numpy, torch) to flat arrays in the wire's types.

Nothing here imports torch: a CPU tensor reaches numpy through ``__array__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from embershard.errors import RequestError

__all__ = ["Lists"]

Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]


class Lists(NamedTuple):
    """Jagged lists in flat form, for callers who have them so: nothing is looped over."""

    lengths: npt.ArrayLike
    """Integers, shape ``(num_lists,)``."""

    values: npt.ArrayLike
    """Ids, integers or strings, shape ``(sum of lengths,)``."""


class FlatLists(NamedTuple):
    lengths: npt.NDArray[np.int32]  # (num_lists,)
    values: npt.NDArray[Any]  # (sum of lengths,)


def flatten(name: str, lists: object) -> FlatLists:
    """Lay lists one behind the other.

    Args:
        name: the input, for messages.
        lists: :class:`Lists`; an array ``(num_lists,)`` of one value each or ``(num_lists, k)``;
            or a sequence of which each element is one value or a sequence of values.
    """
    if isinstance(lists, Lists):
        return _checked(name, np.asarray(lists.lengths), np.asarray(lists.values))
    if isinstance(lists, (str, bytes)) or not isinstance(lists, Sequence):
        return _from_array(name, np.asarray(lists))
    items = [[item] if _is_value(item) else list(item) for item in lists]
    lengths = np.fromiter((len(item) for item in items), dtype=np.int32, count=len(items))
    return FlatLists(lengths, _array_of(name, [value for item in items for value in item]))


def ids_of(name: str, values: npt.NDArray[Any]) -> Int64Array:
    """Ids as 64 bits: integers as they are (uint64 keeps its bits), strings hashed by XXH3-64.

    Raises:
        RequestError: neither integers nor strings.
    """
    if values.size == 0:
        return np.zeros(0, dtype=np.int64)
    if values.dtype.kind == "U":
        return _hashed(values)
    if values.dtype.kind == "u":
        return values.astype(np.uint64).view(np.int64)
    if values.dtype.kind == "i":
        return values.astype(np.int64)
    raise RequestError(
        f"feature {name!r}: expected ids that are integers of 64 bits or strings, "
        f"got {values.dtype} (first value {values.flat[0]!r})"
    )


def floats_of(name: str, values: object) -> Float32Array:
    """Float32, any shape.

    Raises:
        RequestError: not numbers.
    """
    try:
        return np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise RequestError(f"input {name!r}: expected numbers, got {values!r:.80}") from error


def _is_value(item: object) -> bool:
    return isinstance(item, (str, int, float, np.generic)) or np.ndim(item) == 0  # type: ignore[arg-type]


def _array_of(name: str, values: list[Any]) -> npt.NDArray[Any]:
    """A flat array that keeps strings strings and integers exact."""
    strings = sum(isinstance(value, str) for value in values)
    if 0 < strings < len(values):
        raise RequestError(f"feature {name!r}: expected all ids to be strings or none, got both")
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind in "OV":
        raise RequestError(f"feature {name!r}: expected lists of values, got {values!r:.80}")
    # Integers between 2**63 and 2**64 beside negative ones would become floats.
    if array.dtype.kind == "f" and any(isinstance(value, int) for value in values):
        exact = all(float(value) == value and abs(value) < 2**53 for value in values)
        if not exact:
            raise RequestError(f"feature {name!r}: expected ids of 64 bits, got {values!r:.80}")
    return array


def _from_array(name: str, array: npt.NDArray[Any]) -> FlatLists:
    if array.ndim == 0:
        array = array.reshape(1, 1)
    if array.ndim == 1:
        array = array.reshape(-1, 1)
    if array.ndim != 2:
        raise RequestError(
            f"feature {name!r}: expected an array of 1 or 2 dimensions, got shape {array.shape}"
        )
    lengths = np.full(array.shape[0], array.shape[1], dtype=np.int32)
    return FlatLists(lengths, array.reshape(-1))


def _checked(name: str, lengths: npt.NDArray[Any], values: npt.NDArray[Any]) -> FlatLists:
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or values.ndim != 1:
        raise RequestError(
            f"feature {name!r}: expected lengths (integers) and values of 1 dimension, got "
            f"{lengths.dtype} {lengths.shape} and {values.dtype} {values.shape}"
        )
    if lengths.size and int(lengths.min()) < 0:
        raise RequestError(
            f"feature {name!r}: length {int(lengths.min())} at list "
            f"{int(lengths.argmin())} is negative"
        )
    if int(lengths.sum()) != values.size:
        raise RequestError(
            f"feature {name!r}: lengths sum to {int(lengths.sum())}, "
            f"but there are {values.size} values"
        )
    return FlatLists(lengths.astype(np.int32), values)


def _hashed(values: npt.NDArray[Any]) -> Int64Array:
    hashes = (xxhash.xxh3_64_intdigest(str(value).encode()) for value in values)
    return np.fromiter(hashes, dtype=np.uint64, count=values.size).view(np.int64)
