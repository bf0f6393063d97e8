"""The same examples as request rows and as impression rows, for tests."""

import numpy as np
import pyarrow as pa

from embershard.data import TaskConfig
from tests.data.small_parquet import load, write

TASKS = {
    "click": TaskConfig(label="click", mask="seen"),
    "price": TaskConfig(label="price", loss="mse", weight=0.1),
}
SECTIONS = {
    "request": "request",
    "weight": "weight",
    "split": {"by": "hash", "column": "request"},
    "dense": {
        "hour": {"scope": "request", "transforms": ["standardize"]},
        "price": {"transforms": ["log1p", "standardize"]},
        "age": {"scope": "request", "null": 0.0},
    },
    "sparse": {
        "user": {"scope": "request"},
        "item": {"table": "item", "min_count": 2},
        "history": {
            "scope": "request",
            "table": "item",
            "max_ids": 3,
            "keep": "last",
            "min_count": 2,
        },
        "tags": {},
    },
}


def request_table(requests, *, candidates=None, seed=0):
    """Request rows. ``candidates``: their number in each row. By default it is random, also 0."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 6, requests) if candidates is None else np.full(requests, candidates)
    counts[0] = counts[0] or 1

    def lists(make):
        return [[make() for _ in range(count)] for count in counts]

    lengths = rng.integers(0, 5, requests)
    items = lists(lambda: f"i{rng.integers(40)}")
    users = rng.integers(0, 25, requests)
    even = np.arange(25) % 2 == 0
    clicks = [
        [int(rng.random() < (0.8 if even[user] == (int(item[1:]) % 2) else 0.1)) for item in row]
        for user, row in zip(users, items, strict=True)
    ]
    return pa.table(
        {
            "request": pa.array([f"r{number}" for number in range(requests)]),
            "time": pa.array(np.arange(requests)),
            "hour": pa.array(rng.integers(0, 24, requests)),
            "age": pa.array(rng.random(requests), mask=rng.random(requests) < 0.2),
            "user": pa.array([f"u{user}" for user in users]),
            "history": pa.array(
                [[f"i{n}" for n in rng.integers(0, 40, length)] for length in lengths]
            ),
            "item": pa.array(items),
            "tags": pa.array(lists(lambda: rng.integers(0, 9, rng.integers(0, 3)).tolist()),
                             pa.list_(pa.list_(pa.int64()))),
            "price": pa.array(lists(lambda: rng.lognormal())),
            "click": pa.array(clicks, pa.list_(pa.int8())),
            "seen": pa.array(lists(lambda: bool(rng.random() < 0.9))),
            "weight": pa.array(lists(lambda: rng.random() + 0.5)),
        }
    )  # fmt: skip


def impressions(table):
    """Impression rows: one for each candidate of the request rows."""
    columns = {name: [] for name in table.column_names}
    listed = ("item", "tags", "price", "click", "seen", "weight")
    for row in table.to_pylist():
        for place in range(len(row["click"])):
            for name, values in columns.items():
                is_listed = name in listed and isinstance(row[name], list)
                values.append(row[name][place] if is_listed else row[name])
    return pa.table(columns)


def both(folder, table, tasks=TASKS, row_group_size=None, **sections):
    """Two data sets of the same examples: from request rows and from impression rows."""
    sections = SECTIONS | sections
    files = write(folder / "requests", table, row_group_size=row_group_size)
    rows = write(folder / "impressions", impressions(table), row_group_size=row_group_size)
    return (
        load(files, tasks=tasks, rows="request", **sections),
        load(rows, tasks=tasks, **sections),
    )


def expanded(batch):
    """Expands a batch of requests, so that each key has a list for each example."""
    from embershard.jagged import KeyedJaggedTensor

    sparse = batch.sparse
    if not sparse.variable_stride_per_key():
        return batch
    keys, inverse = sparse.inverse_indices()
    values, lengths = [], []
    for key, column in sparse.to_dict().items():
        lists = column.to_dense()
        chosen = [lists[at] for at in inverse[keys.index(key)].tolist()]
        values += chosen
        lengths += [len(ids) for ids in chosen]
    import torch

    return batch._replace(
        sparse=KeyedJaggedTensor(
            sparse.keys(),
            torch.cat([torch.empty(0, dtype=torch.int64), *values]),
            lengths=torch.tensor(lengths, dtype=torch.int64),
        )
    )
