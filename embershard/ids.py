"""Converts the ids of requests, data sets and vocabularies to 64-bit numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xxhash
from numpy.typing import NDArray

from embershard.errors import InputError

_MASK = (1 << 64) - 1

_SECRET = 0x1CAD_21F7_2C81_017C ^ 0xDB97_9083_E96D_D4DE
"""Bytes 8 to 24 of XXH3's secret, both halves combined by xor, for inputs of 4 to 8 bytes."""

_PRIME = np.uint64(0x9FB2_1C65_1E98_DF25)


@runtime_checkable
class _Column(Protocol):
    def __array__(self) -> NDArray[Any]: ...


def hash_string(text: str) -> int:
    """The id of a string: the XXH3-64 of its UTF-8 bytes, as a signed int64."""
    return int(_hashes("id", [text], InputError)[0])


def hash_utf8(texts: Iterable[bytes]) -> NDArray[np.int64]:
    """The ids of strings in UTF-8, int64 ``[N]``."""
    return np.array(list(map(xxhash.xxh3_64_intdigest, texts)), dtype=np.uint64).view(np.int64)


def hash_ids(ids: NDArray[np.int64], seed: int = 0) -> NDArray[np.uint64]:
    """The XXH3-64 of each id's eight little-endian bytes, in the shape of ``ids``, by the
    specification's formula for inputs of eight bytes."""
    swapped = int.from_bytes((seed & 0xFFFF_FFFF).to_bytes(4, "little"), "big")
    flip = np.uint64((_SECRET - (seed ^ swapped << 32)) & _MASK)
    hashes = ids.view(np.uint64)
    hashes = _rotated(hashes, 32) ^ flip
    hashes = (hashes ^ _rotated(hashes, 49) ^ _rotated(hashes, 24)) * _PRIME
    hashes = (hashes ^ ((hashes >> np.uint64(35)) + np.uint64(8))) * _PRIME
    return hashes ^ (hashes >> np.uint64(28))


def _rotated(values: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def ids_from(ids: Iterable[int] | Iterable[str] | NDArray[np.generic]) -> NDArray[np.int64]:
    """Convert numbers in -2**63 .. 2**64 - 1, or strings, to a new int64 array ``[N]``."""
    if isinstance(ids, str | bytes):
        raise InputError(f"ids: expected a list of ids, got {type(ids).__name__} {ids!r}")
    if isinstance(ids, set | frozenset | Mapping):
        raise InputError(f"ids: expected a list of ids in order, got {type(ids).__name__}")
    values = np.asarray(ids) if isinstance(ids, _Column) else list(ids)
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InputError(f"ids: expected one dimension, got shape {values.shape}")
    return np.array(ids_of("ids", values))


def ids_of(
    what: str, values: Sequence[Any] | NDArray[Any], error: type[InputError] = InputError
) -> NDArray[np.int64]:
    """Convert integers or strings to int64 ``(n,)``. Unsigned integers keep their bits; strings are
    hashed. ``what`` is the subject of errors, such as ``feature 'user'``."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "iu":
            kind = np.uint64 if values.dtype.kind == "u" else np.int64
            return values.astype(kind, copy=False).view(np.int64)
        if values.size and values.dtype.kind not in "OUT":
            raise error(
                f"{what}: expected ids that are integers of 64 bits or strings, "
                f"got an array of {values.dtype}"
            )
        values = list(values.tolist())
    kinds = set(map(type, values))
    if kinds <= {int}:
        return _integers(what, values, error)
    if all(issubclass(kind, str) for kind in kinds):
        return _hashes(what, values, error)
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return _integers(what, [int(value) for value in values], error)
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | np.integer | str):
            raise error(
                f"{what}: expected ids that are integers of 64 bits or strings, "
                f"got {type(value).__name__} ({value!r:.40})"
            )
    raise error(f"{what}: expected only integers or only strings, got both")


def _integers(what: str, values: Sequence[int], error: type[InputError]) -> NDArray[np.int64]:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        pass  # Some ids are 2**63 or larger, or do not fit 64 bits.
    for value in values:
        if not -(1 << 63) <= value <= _MASK:
            raise error(f"{what}: expected ids of 64 bits, got {value}")
    return np.array([value & _MASK for value in values], dtype=np.uint64).view(np.int64)


def _hashes(what: str, values: Sequence[str], error: type[InputError]) -> NDArray[np.int64]:
    try:
        return hash_utf8(map(str.encode, values))
    except UnicodeEncodeError as unwritable:
        text, reason = unwritable.object, unwritable.reason
        raise error(
            f"{what}: expected text that UTF-8 can encode, got {text!r:.40}: {reason}"
        ) from unwritable
