"""Makes checked arrays of numpy from Arrow's columns. Errors name the file and the row.

use      columns                        Arrow types
───────  ─────────────────────────────  ──────────────────────────────────────────────
number   dense inputs, labels, weight   integers, floats, decimals, bool
flag     masks                          bool
ids      sparse inputs                  integers, bool and strings, and lists of them
row      sparse inputs, identity        integers and bool, and lists of them
key      request, split by hash         integers and strings
time     split by time                  timestamps, dates, integers, floats

In request rows, the columns of candidates have lists of these.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from embershard.data.id_lists import IdLists
from embershard.data.parquet_config import DenseColumn, ParquetConfig, SparseColumn
from embershard.data.parquet_files import SourceFile, record_batches
from embershard.data.tasks import TaskConfig
from embershard.errors import DataError
from embershard.ids import hash_utf8
from embershard.package.samples import offsets_of
from embershard.package.schema import Scope

Use: TypeAlias = Literal["number", "flag", "ids", "row", "key", "time"]

Level: TypeAlias = Literal["row", "candidate", "either"]
"""``candidate``: the column has a list in each row, with an element for each candidate.
``either``: it has that, or one value in each row."""

EXPECTED: Final[Mapping[Use, str]] = {
    "number": "numbers",
    "flag": "bool",
    "ids": "integers or strings, or lists of them",
    "row": "integers, or lists of them",
    "key": "integers or strings",
    "time": "timestamps, dates or numbers",
}
SPLIT_OWNER: Final = "data.split"


class NeededColumn(NamedTuple):
    """A column that a configuration names."""

    name: str
    use: Use
    owner: str
    """The part of the configuration that names it."""

    level: Level = "row"


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one row group of a file."""

    batch: pa.RecordBatch
    path: str
    group: int
    numbers: NDArray[np.int64]
    """int64 ``[N]``: number of each row in the file, from 0."""

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, first: int, stop: int) -> Rows:
        """The rows from ``first`` up to ``stop``, which is not included."""
        numbers = self.numbers[first:stop]
        return replace(self, batch=self.batch.slice(first, len(numbers)), numbers=numbers)

    def take(self, index: NDArray[np.int64]) -> Rows:
        return replace(self, batch=self.batch.take(pa.array(index)), numbers=self.numbers[index])

    def refusal(self, column: str, row: int, problem: str) -> DataError:
        """The error for a value. ``row`` counts from 0 among these rows."""
        where = f"{self.path}: row group {self.group}: column {column!r}: row {self.numbers[row]}"
        return DataError(f"{where}: {problem}")


def read_rows(
    file: SourceFile, group: int, columns: Sequence[str], *, first: int, rows_max: int
) -> Iterator[Rows]:
    """The rows of one row group in order, at most ``rows_max`` at once. ``first`` is the number of
    its first row in the file. Raises DataError if the file is damaged, or has changed."""
    for batch in record_batches(file, group, columns, rows_max):
        numbers = np.arange(first, first + len(batch))
        yield Rows(batch, file.path, group, numbers)
        first += len(batch)


class RawLists(NamedTuple):
    """The ids of one sparse input in the encoding of a record batch."""

    lists: IdLists
    """Lists of ids, or of places in ``dictionary``."""

    dictionary: pa.Array | None
    """Strings, or other values that a writer encoded. Some may be in no list."""

    def ids(self) -> IdLists:
        if self.dictionary is None:
            return self.lists
        return IdLists(ids_of_values(self.dictionary)[self.lists.values], self.lists.offsets)


def needed_columns(
    config: ParquetConfig, tasks: Mapping[str, TaskConfig]
) -> Iterator[NeededColumn]:
    """All columns to read. A column that has several uses comes several times."""
    is_impression = config.rows == "impression"

    def level(scope: Scope) -> Level:
        return "row" if is_impression or scope == "request" else "candidate"

    if config.split.column is not None:
        use: Use = "time" if config.split.by == "time" else "key"
        yield NeededColumn(config.split.column, use, SPLIT_OWNER)
    for name, dense in config.dense.items():
        owner = f"dense input {name!r}"
        yield NeededColumn(dense.column or name, "number", owner, level(dense.scope))
    for name, sparse in config.sparse.items():
        is_row = sparse.ids == "identity"
        owner = f"sparse input {name!r}" + (' with ids = "identity"' if is_row else "")
        column_use: Use = "row" if is_row else "ids"
        yield NeededColumn(sparse.column or name, column_use, owner, level(sparse.scope))
    for name, task in tasks.items():
        owner = f"label of task {name!r}"
        yield NeededColumn(str(task.label), "number", owner, level("example"))
        if task.mask is not None:
            yield NeededColumn(task.mask, "flag", f"mask of task {name!r}", level("example"))
    if config.weight is not None:
        weight_level: Level = "row" if is_impression else "either"
        yield NeededColumn(config.weight, "number", "data.weight", weight_level)
    if config.request is not None:
        yield NeededColumn(config.request, "key", "data.request")


def column_kind(path: str, schema: pa.Schema, needed: NeededColumn) -> str:
    """The kind of a column's values, in words, which must be the same in all files. Raises
    DataError if the column is missing, or of a type that its use does not take."""
    places = schema.get_all_field_indices(needed.name)
    if len(places) != 1:
        close = difflib.get_close_matches(needed.name, schema.names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close and not places else ""
        raise DataError(
            f"{path}: expected one column {needed.name!r} ({needed.owner}), "
            f"found {len(places) or 'none'}{hint}"
        )
    arrow_type = value_type = schema.field(places[0]).type
    kind, expected, lists = None, EXPECTED[needed.use], ""
    if needed.level == "candidate":
        expected = f"lists with an element for each candidate: {expected}"
    if needed.level == "candidate" or (needed.level == "either" and is_list(arrow_type)):
        value_type = arrow_type.value_type if is_list(arrow_type) else None
        lists = " of candidates"
    if value_type is not None:
        kind = _kind(value_type, needed.use)
    if kind is None:
        raise DataError(
            f"{path}: column {needed.name!r}: expected {expected} ({needed.owner}), "
            f"got {arrow_type}"
        )
    return kind + lists


def dense_matrix(rows: Rows, inputs: Mapping[str, DenseColumn]) -> NDArray[np.float32]:
    """Raw values of all dense inputs, float32 ``[N, F]``."""
    matrix = np.empty((len(rows), len(inputs)), np.float32)
    for place, (name, spec) in enumerate(inputs.items()):
        column = spec.column or name
        values, nulls = _numbers(rows.batch.column(column))
        if nulls is not None:
            if spec.null is None:
                problem = (
                    f"expected a number, got null; dense input {name!r} declares no value for null"
                )
                raise rows.refusal(column, int(np.argmax(nulls)), problem)
            values = np.where(nulls, spec.null, values)
        with np.errstate(over="ignore"):  # The result is infinite, and refused.
            matrix[:, place] = values
        finite = np.isfinite(matrix[:, place])
        if not finite.all():
            row = int(np.argmin(finite))
            problem = (
                f"expected a finite float32, got {values[row]}; write null for a missing value"
            )
            raise rows.refusal(column, row, problem)
    return matrix


def raw_lists(rows: Rows, name: str, spec: SparseColumn) -> RawLists:
    """The ids of one sparse input, after ``max_ids``."""
    column = spec.column or name
    array = rows.batch.column(column)
    if spec.null == "error" and array.null_count:
        raise _null_id(rows, column, name, int(np.argmax(_nulls(array))))
    ids, offsets = array, None
    if is_list(array.type):
        lengths = _numpy(pc.fill_null(pc.list_value_length(array), 0))
        ids, offsets = array.flatten(), offsets_of(lengths)
    if ids.null_count:
        nulls = _nulls(ids)
        if spec.null == "error":
            row = IdLists(nulls.astype(np.int64), offsets).row_of(int(np.argmax(nulls)))
            raise _null_id(rows, column, name, row)
        places = offsets_of(~nulls)
        ids, offsets = ids.drop_null(), places if offsets is None else places[offsets]
    if _is_text(ids.type):
        ids = ids.dictionary_encode()
    if types.is_dictionary(ids.type):
        raw = RawLists(IdLists(_numpy(ids.indices), offsets), ids.dictionary)
    else:
        raw = RawLists(IdLists(ids_of_values(ids), offsets), None)
    raw = raw._replace(lists=_kept(rows, column, spec, raw.lists))
    if spec.rows is not None:
        _check_rows(rows, column, spec.rows, raw, is_unsigned=_is_uint64(ids.type))
    return raw


def ids_of_values(values: pa.Array) -> NDArray[np.int64]:
    """The id of each value, int64 ``[N]``. A client's integer or string has the same id."""
    if _is_text(values.type):
        return hash_utf8(_numpy(values.cast(pa.large_binary())))
    if types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    ids = _numpy(values)
    return ids.view(np.int64) if ids.dtype == np.uint64 else ids.astype(np.int64)


def label_matrix(rows: Rows, tasks: Mapping[str, TaskConfig]) -> NDArray[np.float32]:
    """Labels of all tasks, float32 ``[N, T]``; NaN if a label is null or masked."""
    matrix = np.empty((len(rows), len(tasks)), np.float32)
    for place, (name, task) in enumerate(tasks.items()):
        column = str(task.label)
        values, nulls = _numbers(rows.batch.column(column))
        counts = np.ones(len(values), np.bool_) if nulls is None else ~nulls
        if task.mask is not None:
            counts &= _numpy(pc.fill_null(rows.batch.column(task.mask), False))
        if task.loss == "bce":
            wrong = counts & (values != 0) & (values != 1)
            expected = f"0 or 1 (label of task {name!r} with loss bce)"
        else:
            wrong = counts & ~np.isfinite(values.astype(np.float32))
            expected = f"a finite number (label of task {name!r})"
        if wrong.any():
            row = int(np.argmax(wrong))
            problem = f"expected {expected}, got {values[row]}; write null for an unknown label"
            raise rows.refusal(column, row, problem)
        matrix[:, place] = np.where(counts, values, np.nan)
    return matrix


def row_weights(rows: Rows, column: str) -> NDArray[np.float32]:
    """The weight of each row, float32 ``[N]``, at least 0."""
    values, nulls = _numbers(rows.batch.column(column))
    weights = values.astype(np.float32)
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        value = "null" if nulls is not None and nulls[row] else values[row]
        raise rows.refusal(column, row, f"expected a weight of at least 0, got {value}")
    return weights


def row_keys(rows: Rows, column: str) -> NDArray[np.int64]:
    """The id of each row's integer or string, int64 ``[N]``."""
    array = _without_nulls(rows, column)
    if not types.is_dictionary(array.type) and _is_text(array.type):
        array = array.dictionary_encode()
    if types.is_dictionary(array.type):
        keys: NDArray[np.int64] = ids_of_values(array.dictionary)[_numpy(array.indices)]
        return keys
    return ids_of_values(array)


def row_times(rows: Rows, column: str) -> NDArray[np.int64]:
    """Times, int64 ``[N]``: microseconds, integers, or floats as `_ordered_bits`."""
    array = _without_nulls(rows, column, "a time to split by")
    if types.is_temporal(array.type):
        return _microseconds(rows, column, array)
    values = _numpy(array)
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise rows.refusal(column, row, f"expected a finite number, got {values[row]}")
        return _ordered_bits(values)
    if values.dtype == np.uint64 and (values >> np.uint64(63)).any():
        row = int(np.argmax(values))
        raise rows.refusal(column, row, f"expected a time below 2**63, got {values[row]}")
    return values.astype(np.int64)


def _microseconds(rows: Rows, column: str, array: pa.Array) -> NDArray[np.int64]:
    """int64 ``[N]``: microseconds since 1970."""
    times = array.cast(pa.timestamp("us", tz=getattr(array.type, "tz", None)), safe=False)
    if getattr(array.type, "unit", "") != "ns":  # Only larger units can overflow.
        wrong = _numpy(pc.not_equal(times.cast(array.type, safe=False), array))
        if wrong.any():
            row = int(np.argmax(wrong))
            width = pa.int32() if types.is_date32(array.type) else pa.int64()
            got = f"{array.cast(width)[row]} ({array.type})"
            problem = f"expected a time of less than 2**63 microseconds, got {got}"
            raise rows.refusal(column, row, problem)
    return _numpy(times.cast(pa.int64()))


def _ordered_bits(values: NDArray[Any]) -> NDArray[np.int64]:
    """int64 ``[N]`` in the order of the floats. The bits of negative ones rise as they fall."""
    bits = (values.astype(np.float64) + 0.0).view(np.int64)  # The sum has no -0.0.
    return np.where(bits < 0, bits ^ np.iinfo(np.int64).max, bits)


def _kind(arrow_type: pa.DataType, use: Use) -> str | None:
    """The kind of the values; None if the use does not take the type."""
    value = arrow_type.value_type if is_list(arrow_type) else arrow_type
    value = value.value_type if types.is_dictionary(value) else value
    is_integer = types.is_integer(value)
    is_number = is_integer or types.is_floating(value) or types.is_boolean(value)
    if use == "ids" or use == "row":
        is_text = _is_text(value) and use == "ids"
        if not (is_integer or types.is_boolean(value) or is_text):
            return None
        kind = "strings" if is_text else "integers"
        return f"lists of {kind}" if is_list(arrow_type) else kind
    if is_list(arrow_type):
        return None
    match use:
        case "number":
            return "numbers" if is_number or types.is_decimal(value) else None
        case "flag":
            return "bool" if types.is_boolean(arrow_type) else None
        case "key":
            return "strings" if _is_text(value) else "integers" if is_integer else None
        case "time":
            if types.is_timestamp(arrow_type) or types.is_date(arrow_type):
                return "timestamps"
            is_plain = is_integer or types.is_floating(value)
            return ("integers" if is_integer else "floats") if is_plain else None


def is_list(arrow_type: pa.DataType) -> bool:
    return bool(
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
    )


def _is_text(arrow_type: pa.DataType) -> bool:
    """Strings, also those of writers that do not mark them as UTF-8."""
    return bool(
        types.is_string(arrow_type)
        or types.is_large_string(arrow_type)
        or types.is_binary(arrow_type)
        or types.is_large_binary(arrow_type)
    )


def _numbers(array: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Values ``[N]``, NaN for null; and which are null, or None if there are no nulls."""
    nulls = _nulls(array) if array.null_count else None
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_boolean(array.type) or types.is_decimal(array.type):
        array = array.cast(pa.float64(), safe=False)
    return _numpy(array), nulls


def _numpy(array: pa.Array) -> NDArray[Any]:
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    return _numpy(array.is_null())


def _without_nulls(rows: Rows, column: str, expected: str = "a value") -> pa.Array:
    array = rows.batch.column(column)
    if array.null_count:
        raise rows.refusal(column, int(np.argmax(_nulls(array))), f"expected {expected}, got null")
    return array


def _null_id(rows: Rows, column: str, name: str, row: int) -> DataError:
    problem = f'expected an id, got null; set null = "empty" in [data.sparse.{name}]'
    return rows.refusal(column, row, problem)


def _kept(rows: Rows, column: str, spec: SparseColumn, lists: IdLists) -> IdLists:
    """At most ``max_ids`` of each list."""
    if spec.max_ids and spec.keep == "reject":
        lengths = lists.lengths
        row = int(np.argmax(lengths)) if len(lengths) else 0
        if len(lengths) and lengths[row] > spec.max_ids:
            problem = f"expected at most {spec.max_ids} ids, got {lengths[row]}; set keep"
            raise rows.refusal(column, row, problem)
    return lists.at_most(spec.max_ids, spec.keep)


def _is_uint64(arrow_type: pa.DataType) -> bool:
    is_encoded = types.is_dictionary(arrow_type)
    return bool(types.is_uint64(arrow_type.value_type if is_encoded else arrow_type))


def _check_rows(rows: Rows, column: str, count: int, raw: RawLists, *, is_unsigned: bool) -> None:
    """Refuses ids that are not rows of a table."""
    ids = raw.ids()
    wrong = (ids.values < 0) | (ids.values >= count)
    if wrong.any():
        place = int(np.argmax(wrong))
        got = ids.values[place].view(np.uint64) if is_unsigned else ids.values[place]
        problem = f'expected an id of 0 to {count - 1} (ids = "identity"), got {got}'
        raise rows.refusal(column, ids.row_of(place), problem)
