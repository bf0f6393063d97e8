"""Proposes a run's TOML file from a sample of Parquet rows.

column                                  becomes
──────────────────────────────────────  ─────────────────────────────────────────────
0 and 1, named as a label or by --label a task
timestamp or date                       the column that splits by time
float; integer named as a quantity      a dense input
string; other integer; list of ids      a sparse input
another value in every row, constant,   left out, with the reason
nested, binary
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from embershard.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Kind: TypeAlias = Literal["label", "request", "split", "dense", "sparse", "left out"]

ColumnType: TypeAlias = Literal["float", "integer", "string", "bool", "time", "list", "other"]

LABEL_NAMES = re.compile(
    r"(^|_)(label|target|click(ed)?|buy|bought|purchased?|conver(ted|sion)|liked?)$", re.I
)
REQUEST_NAMES = re.compile(
    r"^(request|session|impression|query|search|page_?view)_?(id|key)$", re.I
)
TIME_NAMES = re.compile(r"(^|_)(ts|time|timestamp|datetime|date|event_time|created_at)$", re.I)
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
"""A list and a column share a table if they have this share of all their ids in common."""

HEAVY_TAIL = 8.0
"""A column of numbers from 0 whose 99th percentile is this many medians gets a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedColumn:
    """What a column of the files becomes."""

    name: str
    kind: Kind
    facts: str
    """Type, range, distinct values and nulls, in a few words."""

    settings: tuple[str, ...] = ()
    """Lines of its section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A run's file as text, and what each column became."""

    toml: str
    columns: tuple[ProposedColumn, ...]


def propose(
    sample: pa.Table,
    *,
    files: Sequence[str],
    rows: int,
    labels: Sequence[str] = (),
    request: str | None = None,
    time: str | None = None,
    checkpoints: str = "checkpoints/ranker",
) -> Proposal:
    """Propose a configuration.

    Args:
        sample: rows of the files, all columns.
        files: what ``data.files`` will say.
        rows: number of rows of all files.
        labels: columns that are labels. Empty: columns of 0 and 1 whose names say so.
        request: column whose equal values are one request. None: a column whose name says so.
        time: column to split by. None: the first timestamp, else a number whose name says so.
        checkpoints: what ``checkpoint.folder`` will say.

    Raises:
        InputError: no rows, a column that is not there, or nothing that could be a label or an
            input.
    """
    names = sample.column_names
    if not len(sample):
        raise InputError("files: expected rows, got none")
    for option, name in (*(("--label", name) for name in labels), ("--request", request),
                         ("--time", time)):  # fmt: skip
        if name is not None and name not in names:
            raise InputError(f"{option}: expected one of the columns {names}, got {name!r}")
    facts = {name: _facts(name, sample.column(name)) for name in names}
    label_names = list(labels) or [n for n in names if facts[n].is_binary and LABEL_NAMES.search(n)]
    if not label_names:
        raise InputError(
            f"--label: expected a column of labels, got none named and none of 0 and 1 in {names} "
            "whose name says label, click, buy or the like"
        )
    others = [name for name in names if name not in label_names]
    if time is None:
        time = next((n for n in others if facts[n].type == "time"), None) or next(
            (n for n in others if facts[n].is_number and TIME_NAMES.search(n)), None
        )
    if request is None:
        request = next(
            (n for n in others if REQUEST_NAMES.search(n) and facts[n].repeats(len(sample))), None
        )
    groups = None if request is None else _codes(sample.column(request))
    columns = []
    for name in names:
        if name in label_names:
            columns.append(_label(facts[name]))
        elif name == time:
            columns.append(_proposed(facts[name], "split", []))
        elif name == request:
            columns.append(_proposed(facts[name], "request", []))
        else:
            shared = groups is not None and _is_constant_in(groups, sample.column(name))
            columns.append(_input(facts[name], len(sample), shared))
    columns = [_with_shared_table(column, columns, sample) for column in columns]
    if not any(column.kind in ("dense", "sparse") for column in columns):
        raise InputError(f"files: expected columns besides {label_names} to learn from, got none")
    heading = f"from {len(sample):,} of {rows:,} rows"
    hash_by = request or _split_column(columns, facts)
    return Proposal(
        toml=_toml(columns, files, heading, request, time, hash_by, checkpoints, rows),
        columns=tuple(columns),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the sample says of one column."""

    name: str
    type: ColumnType
    text: str
    """The Arrow type."""

    nulls: int
    distinct: int
    numbers: NDArray[np.float64] | None
    """Values that are not null, of a number; also lengths of lists."""

    @property
    def is_number(self) -> bool:
        return self.type in ("float", "integer")

    @property
    def is_binary(self) -> bool:
        """Only 0 and 1 or false and true, both of them."""
        if self.type == "bool":
            return self.distinct == 2
        return self.distinct == 2 and self.numbers is not None and set(self.numbers) == {0.0, 1.0}

    def repeats(self, rows: int) -> bool:
        """Most values stand in several rows."""
        return self.distinct < rows / 2


def _facts(name: str, column: pa.ChunkedArray) -> _Facts:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    text, numbers, distinct = str(kind), None, 0
    type_name: ColumnType = "other"
    if _is_list(kind):
        ids = kind.value_type
        is_id = pa.types.is_integer(ids) or pa.types.is_string(ids) or pa.types.is_large_string(ids)
        type_name = "list" if is_id else "other"
        numbers = _numbers(pc.list_value_length(column))
        distinct = pc.count_distinct(pc.list_flatten(column)).as_py() if is_id else 0
    elif pa.types.is_boolean(kind):
        type_name = "bool"
    elif pa.types.is_integer(kind):
        type_name, numbers = "integer", _numbers(column)
    elif pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        type_name, numbers = "float", _numbers(column)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        type_name = "string"
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        type_name = "time"
    if type_name not in ("list", "other"):
        distinct = pc.count_distinct(column).as_py()
    return _Facts(
        name=name, type=type_name, text=text, nulls=column.null_count, distinct=distinct,
        numbers=numbers,
    )  # fmt: skip


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.drop_null().cast("float64", safe=False).to_numpy()
    return values


def _proposed(facts: _Facts, kind: Kind, settings: Sequence[str], note: str = "") -> ProposedColumn:
    said = [facts.text]
    numbers = facts.numbers
    if kind == "label" and numbers is not None and len(numbers):
        said.append(f"mean {numbers.mean():.4g}")
    elif facts.type == "list" and numbers is not None and len(numbers):
        said.append(f"{numbers.mean():.3g} ids a row, at most {int(numbers.max())}")
    elif kind == "dense" and numbers is not None and len(numbers):
        said.append(f"{numbers.min():.4g} .. {numbers.max():.4g}")
    if kind in ("sparse", "request", "left out") and facts.distinct:
        said.append(f"{facts.distinct:,} distinct")
    if facts.nulls:
        said.append(f"{facts.nulls:,} null")
    if note:
        said.append(note)
    return ProposedColumn(
        name=facts.name, kind=kind, facts=", ".join(said), settings=tuple(settings)
    )


def _label(facts: _Facts) -> ProposedColumn:
    settings = [f"label = {json.dumps(facts.name)}"]
    return _proposed(facts, "label", settings if facts.is_binary else [*settings, 'loss = "mse"'])


def _input(facts: _Facts, rows: int, shared: bool) -> ProposedColumn:
    """A dense or sparse input, or a column to leave out."""
    values = rows - facts.nulls
    if facts.type == "other":
        return _proposed(facts, "left out", [], "expected numbers, strings or lists of ids")
    if facts.type == "time":
        return _proposed(facts, "left out", [], "a second time column")
    if facts.distinct <= 1 and facts.type != "list":
        return _proposed(facts, "left out", [], "constant")
    scope = ['scope = "request"'] if shared else []
    if facts.type == "float" or (facts.type == "integer" and QUANTITY_NAMES.search(facts.name)):
        return _proposed(facts, "dense", [*scope, *_dense_settings(facts)])
    if (
        facts.type in ("integer", "string")
        and facts.distinct > UNIQUE_SHARE * values
        and rows > 100
    ):
        return _proposed(facts, "left out", [], "another value in nearly every row")
    return _proposed(facts, "sparse", [*scope, *_sparse_settings(facts)])


def _dense_settings(facts: _Facts) -> list[str]:
    numbers = facts.numbers
    assert numbers is not None
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return []
    middle, high = np.quantile(finite, [0.5, 0.99])
    settings = [f"null = {float(f'{middle:.6g}')}"] if facts.nulls else []
    heavy = finite.min() >= 0 and high > HEAVY_TAIL * max(middle, 1.0)
    return [*settings, f"transforms = {json.dumps([*(['log1p'] if heavy else []), 'standardize'])}"]


def _sparse_settings(facts: _Facts) -> list[str]:
    settings = ['ids = "vocabulary"']
    if facts.distinct > RARE_IDS_FROM:
        settings.append("min_count = 2")
    if facts.type == "list" and facts.numbers is not None and len(facts.numbers):
        most = max(1, int(np.quantile(facts.numbers, 0.99)))
        settings += [f"max_ids = {most}", 'keep = "last"']
    return settings


def _with_shared_table(
    column: ProposedColumn, columns: Sequence[ProposedColumn], sample: pa.Table
) -> ProposedColumn:
    """A list whose ids are those of a column of single ids shares its table."""
    import pyarrow.compute as pc

    def ids_of(name: str) -> pa.Array:
        values = sample.column(name)
        return pc.unique(pc.list_flatten(values) if _is_list(values.type) else values)

    if column.kind != "sparse" or not _is_list(sample.column(column.name).type):
        return column
    own = ids_of(column.name)
    for other in columns:
        kind = sample.column(other.name).type
        if other.kind != "sparse" or _is_list(kind) or kind != own.type:
            continue
        ids = ids_of(other.name)
        common = pc.sum(pc.is_in(own, ids)).as_py() or 0
        if common >= SAME_IDS_SHARE * (len(own) + len(ids) - common):
            # Inputs of one table have one id map, so one min_count.
            counts = tuple(line for line in other.settings if line.startswith("min_count"))
            own_lines = tuple(line for line in column.settings if not line.startswith("min_count"))
            table = f"table = {json.dumps(other.name)}"
            return replace(column, settings=(*own_lines, *counts, table))
    return column


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_one_of = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in is_one_of)


def _codes(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """A number for each row, equal for equal values; lists by all of their ids in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if hasattr(array.type, "value_type"):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        lengths = lengths.astype(np.int64)
        flat = _codes(pa.chunked_array([pc.list_flatten(array)]))
        starts = np.cumsum(lengths) - lengths
        position = (np.arange(len(flat)) - np.repeat(starts, lengths)).astype(np.uint64)
        mixed = _mixed(flat + _mixed(position))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        total: NDArray[np.uint64] = sums[starts + lengths] - sums[starts]
        return total + _mixed(lengths.astype(np.uint64))
    encoded = array.dictionary_encode(null_encoding="encode").indices
    codes: NDArray[np.uint64] = encoded.to_numpy(zero_copy_only=False).astype(np.uint64)
    return codes


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spreads numbers over 64 bits, so that sums of different lists differ."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(31)
    return values * np.uint64(0x94D049BB133111EB)


def _is_constant_in(groups: NDArray[np.uint64], column: pa.ChunkedArray) -> bool:
    """Whether rows of one group always have equal values."""
    try:
        codes = _codes(column)
    except (TypeError, NotImplementedError, ValueError):
        return False  # A nested type, which is left out anyway.
    order = np.argsort(groups, kind="stable")
    same_group = groups[order][1:] == groups[order][:-1]
    return bool((codes[order][1:] == codes[order][:-1])[same_group].all())


def _split_column(columns: Sequence[ProposedColumn], facts: dict[str, _Facts]) -> str:
    """The input with the most distinct values, single ids first: rows are split by its hash."""
    inputs = [column for column in columns if column.kind in ("dense", "sparse")]

    def preference(column: ProposedColumn) -> tuple[bool, int]:
        is_id = column.kind == "sparse" and facts[column.name].type != "list"
        return is_id, facts[column.name].distinct

    return max(inputs, key=preference).name


def _toml(
    columns: Sequence[ProposedColumn],
    files: Sequence[str],
    heading: str,
    request: str | None,
    time: str | None,
    hash_by: str,
    checkpoints: str,
    rows: int,
) -> str:
    facts = {column.name: column.facts for column in columns}
    lines = [
        f"# Proposed by `embershard data init` {heading}.",
        "# Read it through: it was made from names, types and values alone.",
        "",
        "[data]",
        'name = "parquet"',
        f"files = {json.dumps(list(files))}",
    ]
    if request is not None:
        lines.append(f"request = {json.dumps(request)}  # {facts[request]}")
    by = ("time", time) if time is not None else ("hash", hash_by)
    lines += ["", "[data.split]", f'by = "{by[0]}"', f"column = {json.dumps(by[1])}"]
    lines += ["valid = 0.1", "test = 0.1"]
    for kind in ("dense", "sparse"):
        for column in columns:
            if column.kind == kind:
                lines += ["", f"[data.{kind}.{_key(column.name)}]  # {column.facts}"]
                lines += column.settings
    for column in columns:
        if column.kind == "label":
            lines += ["", f"[tasks.{_key(column.name)}]  # {column.facts}", *column.settings]
    left_out = [column for column in columns if column.kind == "left out"]
    if left_out:
        lines += ["", "# Left out:"]
        lines += [f"#   {column.name}: {column.facts}" for column in left_out]
    return "\n".join([*lines, "", *_model_lines(rows, checkpoints)]) + "\n"


def _model_lines(rows: int, checkpoints: str) -> list[str]:
    batch = int(min(8192, max(128, 2 ** np.floor(np.log2(max(rows / 400, 1))))))
    steps = max(10, int(rows * 0.8 / batch / 4))
    return [
        "[model]",
        'name = "dlrm"',
        "embedding_dim = 16",
        "dense_layers = [64, 16]",
        "over_layers = [128, 64, 1]  # ends in 1: one logit for each task",
        "",
        "[training]",
        f"batch_size = {batch}",
        "epochs = 5",
        f"evaluate_every_steps = {steps}",
        "patience = 4",
        "threads = 1  # faster for a small model than one for each core (0)",
        "",
        "[checkpoint]",
        f"folder = {json.dumps(checkpoints)}",
    ]


def _key(name: str) -> str:
    """A key of TOML, quoted if it has to be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
