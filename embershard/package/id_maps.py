"""Maps the ids that clients send to rows of a table.

    map          known ids          row
    ───────────  ─────────────────  ──────────────────────────────────────
    Identity     0 .. rows - 1      the id itself
    Hash         all                XXH3-64 of the id's 8 bytes, modulo buckets
    Vocabulary   the ids of a list  the id's position in the list

The policy of a map says what happens to an unknown id:

    reject   an error names the id
    oov      all unknown ids share the last row of the table
    zero     row -1, a zero vector, which still counts in a mean's divisor

A string is the XXH3-64 of its UTF-8 bytes. Ids have 64 bits: an unsigned id of 2**63 or more is
the negative signed id with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias, final, get_args

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError
from embershard.ids import hash_ids, ids_from

ZERO_ROW: Final = -1
"""Row number of a zero vector, which still counts in a mean's divisor."""

MAX_ROWS: Final = 1 << 40
MAX_KEYS: Final = (1 << 32) - 1
UnknownIds: TypeAlias = Literal["reject", "oov", "zero"]


@final
@dataclass(frozen=True, slots=True)
class Identity:
    """The id is the row.

    ::

        import numpy as np

        users = es.Identity(rows=500, unknown="zero")
        assert users.rows_of(np.array([499, 500])).tolist() == [499, -1]

    Raises:
        InputError: ``rows`` plus the oov row is not 1 .. MAX_ROWS, or ``unknown`` is no policy.
    """

    rows: int
    """Number of known ids, which are 0 .. rows - 1. A table has one more row with ``oov``."""

    unknown: UnknownIds = "reject"
    """Policy for other ids: ``reject`` raises an error, ``oov`` selects the last row, ``zero``
    selects a zero vector."""

    def __post_init__(self) -> None:
        _check_count("Identity: rows", self.rows)
        _check_unknown("Identity", self.unknown)
        _check_count("Identity: rows with the oov row", self.num_rows)

    @property
    def num_rows(self) -> int:
        return self.rows + (self.unknown == "oov")

    def lookup(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each id (int64, any shape), -1 for unknown ids under any policy."""
        return np.where((ids >= 0) & (ids < self.rows), ids, ZERO_ROW)

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each id after the policy. See `Vocabulary.rows_of`."""
        rows = self.lookup(ids)
        return _apply_policy(rows, ids, self.unknown, self.rows, f"in 0..{self.rows - 1}")


@final
@dataclass(frozen=True, slots=True)
class Hash:
    """The row is the XXH3-64 of the id's eight little-endian bytes, modulo ``buckets``.

    Every id is known; different ids may share a row.

    ::

        from embershard.ids import ids_from

        rows = es.Hash(buckets=1000).rows_of(ids_from(["u-81", "u-7"]))
        assert rows.shape == (2,) and rows.max() < 1000

    Raises:
        InputError: ``buckets`` is not 1 .. MAX_ROWS, or ``seed`` is not 0 .. 2**64 - 1.
    """

    buckets: int
    seed: int = 0

    def __post_init__(self) -> None:
        _check_count("Hash: buckets", self.buckets)
        if type(self.seed) is not int or not 0 <= self.seed < 1 << 64:
            raise InputError(f"Hash: seed: expected 0 .. 2**64 - 1, got {self.seed!r}")

    @property
    def num_rows(self) -> int:
        return self.buckets

    def lookup(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return (hash_ids(ids, self.seed) % np.uint64(self.buckets)).astype(np.int64)

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each id (int64, any shape), the same as `lookup`."""
        return self.lookup(ids)


@final
class Vocabulary:
    """The row is the id's position in a list.

    ::

        items = es.Vocabulary(item_ids, unknown="oov")
        assert items.rows_of(np.array([1205, 99])).tolist() == [1, 3]
        assert items.num_rows == 4  # The table has a row more than there are ids.

    Args:
        ids: distinct numbers from -2**63 to 2**64 - 1, or distinct strings. The first has row 0.
        unknown: policy for ids outside the list, as for `Identity`.

    Raises:
        InputError: there are no ids or more than 2**32 - 1, an id occurs twice or is neither a
            number nor a string, or two strings have the same hash.
    """

    __slots__ = ("_keys", "_rows", "_unknown")

    def __init__(
        self,
        ids: Iterable[int] | Iterable[str] | NDArray[np.generic],
        unknown: UnknownIds = "reject",
    ) -> None:
        ids = list(ids) if isinstance(ids, Iterator) else ids
        numbers = ids_from(ids)
        if not len(numbers):
            raise InputError("Vocabulary: expected at least one id, got none")
        rows = np.argsort(numbers, kind="stable")
        keys = numbers[rows]
        equal = np.flatnonzero(keys[1:] == keys[:-1])
        if len(equal):
            first, second = rows[equal[0]], rows[equal[0] + 1]
            raise InputError(
                f"Vocabulary: expected distinct ids, got {list(ids)[first]} "
                f"at positions {first} and {second}; remove repeats, for example with pandas' "
                ".unique()"
            )
        self._hold(keys, rows.astype(np.int64), unknown)

    @classmethod
    def from_sorted(
        cls, keys: NDArray[np.int64], rows: NDArray[np.int64], unknown: UnknownIds = "reject"
    ) -> Self:
        """A vocabulary from the arrays of its file, which are neither copied nor checked: ``keys``,
        int64 ``[N]``, strictly increasing, N > 0, and ``rows``, int64 ``[N]``: each of 0 .. N - 1
        once."""
        vocabulary = cls.__new__(cls)
        vocabulary._hold(keys, rows, unknown)
        return vocabulary

    def _hold(self, keys: NDArray[np.int64], rows: NDArray[np.int64], unknown: UnknownIds) -> None:
        _check_unknown("Vocabulary", unknown)
        if len(keys) > MAX_KEYS:
            raise InputError(f"Vocabulary: expected at most {MAX_KEYS} ids, got {len(keys)}")
        self._keys, self._rows, self._unknown = keys.view(), rows.view(), unknown
        self._keys.flags.writeable = self._rows.flags.writeable = False

    @property
    def keys(self) -> NDArray[np.int64]:
        """The ids, strictly increasing, int64 ``[N]``, read-only."""
        return self._keys

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each of `keys`, int64 ``[N]``, read-only."""
        return self._rows

    @property
    def ids(self) -> NDArray[np.int64]:
        """A copy of the ids in row order, int64 ``[N]``."""
        ids = np.empty_like(self._keys)
        ids[self._rows] = self._keys
        return ids

    @property
    def unknown(self) -> UnknownIds:
        return self._unknown

    @property
    def num_rows(self) -> int:
        return len(self._keys) + (self._unknown == "oov")

    def lookup(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        at = np.minimum(np.searchsorted(self._keys, ids), len(self._keys) - 1)
        return np.where(self._keys[at] == ids, self._rows[at], ZERO_ROW)

    def rows_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each id after the policy.

        Args:
            ids: int64, any shape.

        Returns:
            int64 in the shape of ``ids``: 0 .. num_rows - 1, or -1 for an unknown id under
            ``zero``.

        Raises:
            InputError: an id is unknown under ``reject``. The message has the id and its position.
        """
        rows = self.lookup(ids)
        return _apply_policy(rows, ids, self._unknown, len(self._keys), "in the vocabulary")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self._unknown == other._unknown and self.same_ids(other)

    def __hash__(self) -> int:
        return hash((self._unknown, len(self._keys), int(self._keys[0]), int(self._keys[-1])))

    def __repr__(self) -> str:
        return f"Vocabulary(<{len(self._keys)} ids>, unknown={self._unknown!r})"

    def same_ids(self, other: Vocabulary) -> bool:
        """True if both map the same ids to the same rows, under any policies."""
        return np.array_equal(self._keys, other._keys) and np.array_equal(self._rows, other._rows)


IdMap: TypeAlias = Identity | Hash | Vocabulary


def _apply_policy(
    rows: NDArray[np.int64],
    ids: NDArray[np.int64],
    unknown: UnknownIds,
    oov_row: int,
    known: str,
) -> NDArray[np.int64]:
    if unknown == "zero":
        return rows
    missing = rows == ZERO_ROW
    if unknown == "oov":
        return np.where(missing, oov_row, rows)
    if missing.any():
        position = int(np.argmax(missing))
        raise InputError(
            f"id {int(ids.flat[position])} at position {position} is not {known} (policy: reject)"
        )
    return rows


def _check_count(what: str, count: int) -> None:
    if type(count) is not int or not 1 <= count <= MAX_ROWS:
        raise InputError(f"{what}: expected 1 .. {MAX_ROWS}, got {count!r}")


def _check_unknown(what: str, unknown: str) -> None:
    if unknown not in get_args(UnknownIds):
        raise InputError(
            f"{what}: unknown: expected one of {', '.join(get_args(UnknownIds))}, got {unknown!r}"
        )
