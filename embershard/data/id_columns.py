"""Flat ids, and the number of ids per example, of a column in any form that authors have.

    column                                    lengths
    ────────────────────────────────────────  ───────
    ["a", "b"], any array [N]                 1 for each example: a flat column has one id each
    [["a", "b"], []], an array of lists [N]   of each list
    array [N, k]                              k for each example

Columns of Arrow and pandas, and CPU tensors, reach numpy through ``__array__``. So none of these
libraries is imported, and no Python code runs for each row.
"""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError
from embershard.ids import ids_of

Flat: TypeAlias = NDArray[Any] | Sequence[Any]
Lengths: TypeAlias = NDArray[np.int64]


def flat_ids(column: object) -> tuple[NDArray[np.int64], Lengths]:
    """Ids int64 ``[total]``, a copy, and their lengths int64 ``[N]``. Raises InputError for ids
    that are neither integers nor strings, or both; ids among lists of ids; lists in lists."""
    values, lengths = _flattened(column)
    try:
        return np.array(ids_of("ids", values)), lengths
    except InputError:
        _refuse_first(values, lengths)
        raise


def _flattened(column: object) -> tuple[Flat, Lengths]:
    is_sequence = isinstance(column, Sequence) and not isinstance(column, str | bytes)
    rows: Any = column if is_sequence else np.asarray(column)
    if isinstance(rows, np.ndarray):
        masked = np.ma.is_masked(column)
        if masked or rows.ndim not in (1, 2):
            got = f"shape {rows.shape}" if rows.ndim else f"{column!r:.40}"
            raise InputError(
                "ids: expected an id or a list of ids for each example, "
                f"got {'masked values' if masked else got}"
            )
        if rows.ndim == 2 or rows.dtype != object:
            width = rows.shape[1] if rows.ndim == 2 else 1
            return rows.reshape(-1), np.full(len(rows), width, np.int64)
    kinds = set(map(type, rows))
    lists = {kind for kind in kinds if _is_list(kind)}
    if not lists:
        return rows, np.ones(len(rows), np.int64)
    if kinds != lists:
        _refuse_mixture(rows)
    if lists == {np.ndarray}:
        return _joined(rows), np.fromiter(map(len, rows), np.int64, len(rows))
    return list(chain.from_iterable(rows)), np.fromiter(map(len, rows), np.int64, len(rows))


def _is_list(kind: type) -> bool:
    return issubclass(kind, Sequence | np.ndarray) and not issubclass(kind, str | bytes)


def _joined(rows: Sequence[NDArray[Any]]) -> Flat:
    dimensions = list(map(attrgetter("ndim"), rows))
    if set(dimensions) != {1}:
        row = next(row for row, count in enumerate(dimensions) if count != 1)
        raise InputError(f"ids: row {row}: expected a list of ids, got shape {rows[row].shape}")
    lists = list(filter(len, rows))  # An empty list is float64 unless its dtype was stated.
    if len(set(map(attrgetter("dtype"), lists))) == 1:
        return np.concatenate(lists)
    return list(chain.from_iterable(lists))  # numpy would turn integers into strings.


def _refuse_mixture(rows: Sequence[Any]) -> None:
    kinds = [_is_list(type(row)) for row in rows]
    row, model = kinds.index(False), kinds.index(True)
    raise InputError(
        f"ids: row {row}: expected a list of ids as in row {model}, got {rows[row]!r:.40}"
    )


def _refuse_first(values: Flat, lengths: Lengths) -> None:
    """Names the row of the first value that is no id, or is of another kind than the first."""
    ids = values.tolist() if isinstance(values, np.ndarray) else values
    rows = np.repeat(np.arange(len(lengths)), lengths)
    missing = isinstance(values, np.ndarray) and values.dtype.kind == "f" and np.isnan(values)
    first = int(np.argmax(missing))  # numpy reads integers with a missing value as floats.
    for row, value in zip(rows[first:], ids[first:], strict=True):
        ids_of(f"ids: row {row}", [ids[first], value])
