"""Ids as 64-bit numbers: what a string stands for, and what an id hashes to."""

from collections.abc import Iterable

import numpy as np
import xxhash
from numpy.typing import NDArray

from embershard.errors import InputError

_WRAP = 1 << 64


def hash_string(text: str) -> int:
    """The id that a string stands for: the XXH3-64 of its UTF-8 bytes, as a signed int64."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InputError(f"id {text!r}: expected text that UTF-8 can hold") from None
    return _signed(xxhash.xxh3_64_intdigest(data))


def hash_ids(ids: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """The XXH3-64 of each id's eight little-endian bytes, uint64 in the shape of ``ids``. Equal ids
    are hashed once."""
    distinct, places = np.unique(ids, return_inverse=True)
    data = distinct.astype("<i8").tobytes()
    digest = xxhash.xxh3_64_intdigest
    hashes = (digest(data[at : at + 8], seed) for at in range(0, len(data), 8))
    return np.fromiter(hashes, np.uint64, len(distinct))[places].reshape(ids.shape)


def ids_from(ids: Iterable[int] | Iterable[str] | NDArray[np.generic]) -> NDArray[np.int64]:
    """Numbers of -2**63 .. 2**64 - 1, or strings, not both, as int64 ``[N]``, a copy."""
    if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu":
        if ids.ndim != 1:
            raise InputError(f"ids: expected one dimension, got shape {ids.shape}")
        # Bits, not numbers: uint64 from 2**63 up turn negative.
        return ids.astype(np.uint64 if ids.dtype.kind == "u" else np.int64).view(np.int64)
    if isinstance(ids, str | bytes):
        raise InputError(f"ids: expected a list of ids, got {type(ids).__name__} {ids!r}")
    if isinstance(ids, np.ndarray) and ids.size and ids.dtype.kind not in "OUT":
        raise InputError(f"ids: expected integers or strings, got an array of {ids.dtype}")
    listed = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    if all(isinstance(each, str) for each in listed):
        return np.fromiter(map(hash_string, listed), np.int64, len(listed))
    return np.fromiter(
        (_checked(each, position) for position, each in enumerate(listed)), np.int64, len(listed)
    )


def _checked(each: object, position: int) -> int:
    if isinstance(each, bool | np.bool_) or not isinstance(each, int | np.integer):
        raise InputError(
            f"ids: expected only integers or only strings, "
            f"got {type(each).__name__} {each!r} at position {position}"
        )
    number = int(each)
    if not -(1 << 63) <= number < _WRAP:
        raise InputError(f"ids: expected 64 bits, got {number} at position {position}")
    return _signed(number)


def _signed(number: int) -> int:
    return number - _WRAP if number >= 1 << 63 else number
