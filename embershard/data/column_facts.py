"""Facts about one column of a sample of rows: its type, values and nulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types

from embershard.data.parquet_columns import is_list

ColumnType: TypeAlias = Literal["float", "integer", "string", "bool", "time", "list", "other"]
"""``list`` has ids, which are integers or strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    name: str
    type: ColumnType
    arrow_type: str
    rows: int
    nulls: int
    distinct: int
    """Distinct values, or distinct ids in lists."""

    numbers: NDArray[np.float64] | None
    """The numbers that are not null, or the lengths of lists."""

    @property
    def is_number(self) -> bool:
        return self.type in ("float", "integer")

    @property
    def is_id(self) -> bool:
        return self.type in ("integer", "string")

    @property
    def is_binary(self) -> bool:
        """True if the values are 0 and 1, or false and true, and both occur."""
        if self.type == "bool":
            return self.distinct == 2
        return self.distinct == 2 and self.numbers is not None and set(self.numbers) == {0.0, 1.0}

    @property
    def repeats(self) -> bool:
        """True if most values stand in several rows."""
        return self.distinct < self.rows / 2


def facts_of(name: str, column: pa.ChunkedArray) -> ColumnFacts:
    """The facts about a column, which is not dictionary-encoded."""
    kind = column_type(column.type)
    distinct, numbers = 0, None
    if kind != "other":
        values = pc.list_flatten(column) if kind == "list" else column
        distinct = pc.count_distinct(values).as_py()
    if is_list(column.type):
        numbers = _numbers(pc.list_value_length(column))
    elif kind in ("float", "integer"):
        numbers = _numbers(column)
    return ColumnFacts(
        name=name,
        type=kind,
        arrow_type=str(column.type),
        rows=len(column),
        nulls=column.null_count,
        distinct=distinct,
        numbers=numbers,
    )


def column_type(arrow_type: pa.DataType) -> ColumnType:
    """The type of a column in the words of a proposal."""
    if is_list(arrow_type):
        is_of_ids = column_type(arrow_type.value_type) in ("integer", "string")
        return "list" if is_of_ids else "other"
    if types.is_boolean(arrow_type):
        return "bool"
    if types.is_integer(arrow_type):
        return "integer"
    if types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "float"
    if types.is_string(arrow_type) or types.is_large_string(arrow_type):
        return "string"
    if types.is_timestamp(arrow_type) or types.is_date(arrow_type):
        return "time"
    return "other"


def is_constant_in(groups: pa.ChunkedArray, column: pa.ChunkedArray) -> bool:
    """True if rows with equal values of ``groups`` always have equal values of ``column``."""
    codes = groups.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    places = np.flatnonzero(np.diff(codes[order]) == 0)
    values = column.combine_chunks()
    earlier, later = (values.take(pa.array(order[places + step])) for step in (0, 1))
    return bool(earlier.equals(later))


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.drop_null().cast("float64", safe=False).to_numpy()
    return values
