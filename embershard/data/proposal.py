"""Proposes a run's TOML file from a sample of Parquet rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embershard.data.column_facts import ColumnFacts, facts_of
from embershard.data.parquet_columns import is_list
from embershard.data.proposed_columns import (
    ProposedColumn,
    Roles,
    proposed_column,
    with_shared_table,
)
from embershard.errors import InputError

LABEL_NAMES = re.compile(
    r"(^|_)(label|target|click(ed)?|buy|bought|purchased?|conver(ted|sion)|liked?)$", re.I
)
REQUEST_NAMES = re.compile(
    r"^(request|session|impression|query|search|page_?view)_?(id|key)$", re.I
)
WEIGHT_NAMES = re.compile(r"^((sample|example|row)_?)?weight$", re.I)
TIME_NAMES = re.compile(r"(^|_)(ts|time|timestamp|datetime|date|event_time|created_at)$", re.I)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A run's file as text, and the part of each column."""

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
    """Propose a configuration from ``sample``, which has all columns. ``rows`` is the number of
    rows of all files. Without ``labels``, columns of 0 and 1 with a label's name are used. Without
    ``request``, it is the id column with such a name whose values repeat, if any. Without ``time``,
    it is the first timestamp, or else the first number with such a name. Raises InputError for
    no rows, a column that is not there, or nothing that could be a label or an input."""
    if not len(sample):
        raise InputError("files: expected rows, got none")
    values = {name: _decoded(sample.column(name)) for name in sample.column_names}
    candidates = _candidate_columns(values, labels)
    values |= {name: pc.list_flatten(values[name]) for name in candidates}
    facts = {name: facts_of(name, column) for name, column in values.items()}
    roles = _roles(facts, labels, request, time, candidates)
    columns = [proposed_column(facts[name], roles, values) for name in facts]
    columns = [with_shared_table(column, columns, values) for column in columns]
    inputs = [column for column in columns if column.kind in ("dense", "sparse")]
    if not inputs:
        problem = f"expected columns besides {list(roles.labels)} to learn from, got none"
        raise InputError(f"files: {problem}")
    return Proposal(
        toml="\n".join(
            [
                f"# Proposed by `embershard data init` from {len(sample):,} of {rows:,} rows.",
                "# Read it through: it was made from names, types and values alone.",
                *_data_lines(columns, roles, files, facts),
                *_input_lines(columns),
                "",
                *_model_lines(rows * facts[roles.labels[0]].rows // len(sample), checkpoints),
                "",
            ]
        ),
        columns=tuple(columns),
    )


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_encoded = pa.types.is_dictionary(column.type)
    return column.cast(column.type.value_type) if is_encoded else column


def _candidate_columns(
    columns: Mapping[str, pa.ChunkedArray], labels: Sequence[str]
) -> frozenset[str]:
    """If the labels are lists, the columns whose lists are as long as theirs in every row."""

    def is_label(name: str) -> bool:
        values = pc.list_flatten(columns[name]) if name in lists else columns[name]
        return bool(LABEL_NAMES.search(name)) and facts_of(name, values).is_binary

    lists = {name for name, column in columns.items() if is_list(column.type)}
    labels = labels or [name for name in columns if is_label(name)]
    if not labels or not lists.issuperset(labels):
        return frozenset()
    lengths = {
        name: pc.fill_null(pc.list_value_length(columns[name]), 0).cast("int64") for name in lists
    }
    candidates = frozenset(name for name in lists if lengths[name].equals(lengths[labels[0]]))
    for label in labels:
        if label not in candidates:
            raise InputError(
                f"--label: expected lists as long as those of {labels[0]!r} in every row, got "
                f"other lengths in {label!r}"
            )
    return candidates


def _roles(
    facts: Mapping[str, ColumnFacts],
    labels: Sequence[str],
    request: str | None,
    time: str | None,
    candidates: frozenset[str],
) -> Roles:
    names = list(facts)
    options = [*(("--label", name) for name in labels), ("--request", request), ("--time", time)]
    for option, name in options:
        if name is not None and name not in facts:
            raise InputError(f"{option}: expected one of the columns {names}, got {name!r}")
    for option, name in options[len(labels) :]:
        if name in candidates:
            raise InputError(f"{option}: expected a column without lists, got {name!r}")
    if request is not None and not facts[request].is_id:
        got = f"{request!r} of {facts[request].arrow_type}"
        raise InputError(f"--request: expected a column of integers or strings, got {got}")
    if time is not None and facts[time].type not in ("time", "float", "integer"):
        got = f"{time!r} of {facts[time].arrow_type}"
        raise InputError(f"--time: expected a column of timestamps, dates or numbers, got {got}")
    labels = labels or [
        name for name in names if facts[name].is_binary and LABEL_NAMES.search(name)
    ]
    if not labels:
        raise InputError(
            f"--label: expected a column of labels, got none named and none of 0 and 1 in {names} "
            "whose name says label, click, buy or the like"
        )
    others = [column for column in facts.values() if column.name not in {*labels, *candidates}]

    def first(suits: Callable[[ColumnFacts], object]) -> str | None:
        return next((column.name for column in others if suits(column)), None)

    def is_request(column: ColumnFacts) -> bool:
        return column.is_id and column.repeats and bool(REQUEST_NAMES.search(column.name))

    time = time or first(lambda column: column.type == "time")
    time = time or first(lambda column: column.is_number and TIME_NAMES.search(column.name))
    weight = next((column.name for column in facts.values() if _is_weight(column, labels)), None)
    return Roles(labels, request or first(is_request), time, weight, candidates)


def _is_weight(column: ColumnFacts, labels: Sequence[str]) -> bool:
    """True for numbers from 0 that are named as weights."""
    if not WEIGHT_NAMES.search(column.name) or column.name in labels or column.nulls:
        return False
    return column.is_number and column.numbers is not None and bool((column.numbers >= 0).all())


def _data_lines(
    columns: Sequence[ProposedColumn],
    roles: Roles,
    files: Sequence[str],
    facts: Mapping[str, ColumnFacts],
) -> Iterator[str]:
    words = {column.name: column.facts for column in columns}
    yield from ("", "[data]", 'name = "parquet"', f"files = {json.dumps(list(files))}")
    if roles.candidates:
        yield 'rows = "request"'
    if roles.request is not None:
        yield f"request = {json.dumps(roles.request)}  # {words[roles.request]}"
    if roles.weight is not None:
        yield f"weight = {json.dumps(roles.weight)}  # {words[roles.weight]}"
    if roles.time is not None:
        by, column = "time", roles.time
    else:
        by, column = "hash", roles.request or _split_column(columns, roles, facts)
    yield from ("", "[data.split]", f'by = "{by}"', f"column = {json.dumps(column)}")
    yield from ("valid = 0.1", "test = 0.1")


def _split_column(
    columns: Sequence[ProposedColumn], roles: Roles, facts: Mapping[str, ColumnFacts]
) -> str:
    """The input to split by. Of the inputs with a single id a row, or else of all inputs, it has
    the most distinct values. For request rows it is an id column without lists."""

    def preference(column: ProposedColumn) -> tuple[bool, int]:
        has_single_ids = column.kind == "sparse" and facts[column.name].type != "list"
        return has_single_ids, facts[column.name].distinct

    if roles.candidates:
        ids = [fact for fact in facts.values() if fact.is_id and fact.name not in roles.candidates]
        if not ids:
            raise InputError("--time: expected a column without lists to split by, got none")
        return max(ids, key=lambda fact: fact.distinct).name
    inputs = [column for column in columns if column.kind in ("dense", "sparse")]
    return max(inputs, key=preference).name


def _input_lines(columns: Sequence[ProposedColumn]) -> Iterator[str]:
    sections = {"dense": "data.dense", "sparse": "data.sparse", "label": "tasks"}
    for kind, section in sections.items():
        for column in columns:
            if column.kind == kind:
                yield from ("", f"[{section}.{_key(column.name)}]  # {column.facts}")
                yield from column.settings
    left_out = [column for column in columns if column.kind == "left out"]
    if left_out:
        yield from ("", "# Left out:")
        yield from (f"#   {column.name}: {column.facts}" for column in left_out)


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
        "last_every_steps = 500  # a run that was killed goes on from here",
    ]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
