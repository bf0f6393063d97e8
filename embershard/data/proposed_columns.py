"""Decides which part each column of a sample has in a proposed file.

column                                     part
─────────────────────────────────────────  ──────────────────────────────
0 and 1, named as a label or by --label    a task
timestamp or date                          the column that splits by time
numbers from 0, named weight               the weight of the losses
float; integer named as a quantity         a dense input
string; other integer; list of ids         a sparse input
another value in every row, constant,      left out, with the reason
nested, binary
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embershard.data.column_facts import ColumnFacts, is_constant_in
from embershard.data.parquet_columns import is_list

Kind: TypeAlias = Literal["label", "request", "split", "weight", "dense", "sparse", "left out"]

QUANTITY_NAMES = re.compile(
    r"(^|_)(n|num|count|counts|cnt|price|cost|amount|age|hour|minute|days?|rate|score|size|length|"
    r"duration|distance|width|height|rank|position|views|total|avg|mean|sum|ratio|dense\w*)(_|\d|$)",
    re.I,
)
RARE_IDS_FROM = 1000
"""A vocabulary with more ids than this leaves out those that were seen once."""

UNIQUE_SHARE = 0.95
"""A column with more distinct values than this share of the rows identifies rows."""

FEW_ROWS = 100
"""Among so few rows, values may all differ by chance."""

SAME_IDS_SHARE = 0.8
"""A list and a column share a table if they have this share of all their ids in common. If the
list's name has the column's in it, the column only needs this share of the list's ids."""

HEAVY_TAIL = 8.0
"""A column of numbers from 0 whose 99th percentile is this many medians gets a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedColumn:
    """The part that a column has in the proposed file."""

    name: str
    kind: Kind
    facts: str
    """Type, range, distinct values and nulls, in a few words."""

    settings: tuple[str, ...] = ()
    """Lines of its section."""


class Roles(NamedTuple):
    """Columns that are no inputs, and those of candidates."""

    labels: Sequence[str]
    request: str | None
    time: str | None
    weight: str | None
    candidates: Collection[str]
    """Columns of lists with an element for each candidate. Empty if a row is an impression."""


def proposed_column(
    facts: ColumnFacts, roles: Roles, sample: Mapping[str, pa.ChunkedArray]
) -> ProposedColumn:
    if facts.name in roles.labels:
        settings = [f"label = {json.dumps(facts.name)}"]
        return _proposed(
            facts, "label", settings if facts.is_binary else [*settings, 'loss = "mse"']
        )
    if facts.name == roles.time:
        return _proposed(facts, "split", [])
    if facts.name == roles.request:
        return _proposed(facts, "request", [])
    if facts.name == roles.weight:
        return _proposed(facts, "weight", [], "multiplies the losses of each row")
    if reason := _reason_to_leave_out(facts):
        return _proposed(facts, "left out", [], reason)
    if roles.candidates:
        is_shared = facts.name not in roles.candidates
    else:
        groups = None if roles.request is None else sample[roles.request]
        is_shared = groups is not None and is_constant_in(groups, sample[facts.name])
    scope = ['scope = "request"'] if is_shared else []
    if _is_quantity(facts):
        return _proposed(facts, "dense", [*scope, *_dense_settings(facts)])
    return _proposed(facts, "sparse", [*scope, *_sparse_settings(facts)])


def _reason_to_leave_out(facts: ColumnFacts) -> str | None:
    if facts.type == "other":
        return "expected numbers, strings or lists of ids"
    if facts.type == "time":
        return "a second time column"
    if facts.distinct <= 1 and facts.type != "list":
        return "constant"
    is_unique = facts.distinct > UNIQUE_SHARE * (facts.rows - facts.nulls)
    if facts.is_id and not _is_quantity(facts) and is_unique and facts.rows > FEW_ROWS:
        return "another value in nearly every row"
    return None


def _is_quantity(facts: ColumnFacts) -> bool:
    is_named_as_one = facts.type == "integer" and QUANTITY_NAMES.search(facts.name)
    return facts.type == "float" or bool(is_named_as_one)


def _proposed(
    facts: ColumnFacts, kind: Kind, settings: Sequence[str], reason: str = ""
) -> ProposedColumn:
    words, numbers = [facts.arrow_type], facts.numbers
    if numbers is not None and len(numbers):
        if kind == "label":
            words.append(f"mean {numbers.mean():.4g}")
        elif facts.type == "list":
            words.append(f"{numbers.mean():.3g} ids a row, at most {int(numbers.max())}")
        elif kind in ("dense", "weight"):
            finite = numbers[np.isfinite(numbers)]
            if len(finite):
                words.append(f"{finite.min():.4g} .. {finite.max():.4g}")
            if len(finite) < len(numbers):
                words.append(f"{len(numbers) - len(finite):,} NaN or infinite: write null")
    if kind in ("sparse", "request", "left out") and facts.distinct:
        words.append(f"{facts.distinct:,} distinct")
    if facts.nulls:
        words.append(f"{facts.nulls:,} null")
    if reason:
        words.append(reason)
    return ProposedColumn(
        name=facts.name, kind=kind, facts=", ".join(words), settings=tuple(settings)
    )


def _dense_settings(facts: ColumnFacts) -> list[str]:
    numbers = facts.numbers
    assert numbers is not None
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return []
    middle, high = np.quantile(finite, [0.5, 0.99])
    settings = [f"null = {float(f'{middle:.6g}')}"] if facts.nulls else []
    heavy = finite.min() >= 0 and high > HEAVY_TAIL * max(middle, 1.0)
    return [*settings, f"transforms = {json.dumps([*(['log1p'] if heavy else []), 'standardize'])}"]


def _sparse_settings(facts: ColumnFacts) -> list[str]:
    settings = ['ids = "vocabulary"']
    if facts.distinct > RARE_IDS_FROM:
        settings.append("min_count = 2")
    if facts.type == "list" and facts.numbers is not None and len(facts.numbers):
        most = max(1, int(np.quantile(facts.numbers, 0.99)))
        settings += [f"max_ids = {most}", 'keep = "last"']
    return settings


def with_shared_table(
    column: ProposedColumn,
    columns: Sequence[ProposedColumn],
    sample: Mapping[str, pa.ChunkedArray],
) -> ProposedColumn:
    """The same column, in the table of a column of single ids if it has lists of the same ids."""

    def ids_of(name: str) -> pa.Array:
        values = sample[name]
        return pc.unique(pc.list_flatten(values) if is_list(values.type) else values)

    if column.kind != "sparse" or not is_list(sample[column.name].type):
        return column
    own = ids_of(column.name)
    for other in columns:
        kind = sample[other.name].type
        if other.kind != "sparse" or is_list(kind) or kind != own.type:
            continue
        ids = ids_of(other.name)
        common = pc.sum(pc.is_in(own, ids)).as_py() or 0
        noun = re.sub(r"_?id$", "", other.name) or other.name
        is_named_alike = re.search(rf"(^|_){re.escape(noun)}(s|_|$)", column.name)
        compared = len(own) if is_named_alike else len(own) + len(ids) - common
        if common >= SAME_IDS_SHARE * compared:
            # Inputs of one table have one id map, so one min_count.
            counts = tuple(line for line in other.settings if line.startswith("min_count"))
            own_lines = tuple(line for line in column.settings if not line.startswith("min_count"))
            table = f"table = {json.dumps(other.name)}"
            return replace(column, settings=(*own_lines, *counts, table))
    return column
