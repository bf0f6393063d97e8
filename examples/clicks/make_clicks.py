"""Writes a made-up click log as Parquet, for the five commands of README.

    python examples/clicks/make_clicks.py clicks --rows 200000

Columns: timestamp, dense_0 .. dense_11 (float), category_0 .. category_9 (string), user_id,
item_id, code_0 .. code_7 (integer), history (list of item ids), click, buy.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DENSE, CATEGORIES, CODES = 12, 10, 8
USERS, ITEMS = 20_000, 5_000
FIRST_SECOND = 1_767_225_600  # 2026-01-01
SECONDS = 14 * 86_400
FILE_ROWS = 50_000


def popular(rng: np.random.Generator, size: int, kinds: int) -> np.ndarray:
    """Draw numbers below ``kinds``, int64 ``[size]``. Small ones are far more frequent."""
    return np.minimum((rng.random(size) ** 3 * kinds).astype(np.int64), kinds - 1)


def make(rows: int, seed: int) -> pa.Table:
    """Make a log in the order of time. The labels depend on the columns."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((rows, DENSE)).astype(np.float32)
    dense[:, 6:] = np.exp(dense[:, 6:])  # Counts and prices have heavy tails.
    kinds = [10 * 3**at for at in range(CATEGORIES - 4)] + [40, 300, 2000, 8]
    sparse = {f"category_{at}": popular(rng, rows, kinds[at]) for at in range(CATEGORIES)}
    sparse |= {"user_id": popular(rng, rows, USERS), "item_id": popular(rng, rows, ITEMS)}
    sparse |= {f"code_{at}": popular(rng, rows, 20 * 2**at) for at in range(CODES)}
    lengths = rng.integers(0, 12, rows)
    history = popular(rng, int(lengths.sum()), ITEMS)
    appeal, taste = rng.normal(0, 0.8, ITEMS), rng.normal(0, 0.6, USERS)
    logit = 0.4 * dense[:, 0] - 0.3 * dense[:, 1] + 0.3 * np.log(dense[:, 6])
    logit += appeal[sparse["item_id"]] + taste[sparse["user_id"]]
    logit += rng.normal(0, 0.5, kinds[2])[sparse["category_2"]]
    click = rng.random(rows) < 1 / (1 + np.exp(1.5 - logit))
    wish = (
        0.5 * dense[:, 2] - 0.4 * np.log(dense[:, 7]) + rng.normal(0, 0.8, ITEMS)[sparse["item_id"]]
    )
    buy = click & (rng.random(rows) < 1 / (1 + np.exp(1.0 - wish)))
    seconds = np.sort(rng.integers(0, SECONDS, rows)) + FIRST_SECOND
    columns: dict[str, pa.Array] = {"timestamp": pa.array(seconds * 1000, pa.timestamp("ms"))}
    columns |= {f"dense_{at}": pa.array(dense[:, at]) for at in range(DENSE)}
    for name, values in sparse.items():
        if name.startswith("category"):
            values = np.char.add(f"{name[-1]}-", values.astype(str))
        columns[name] = pa.array(values)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    columns["history"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(history))
    columns |= {"click": pa.array(click.astype(np.int8)), "buy": pa.array(buy.astype(np.int8))}
    return pa.table(columns)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a made-up click log as Parquet.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    table = make(args.rows, args.seed)
    for number, first in enumerate(range(0, args.rows, FILE_ROWS)):
        pq.write_table(table.slice(first, FILE_ROWS), args.folder / f"part-{number:05}.parquet")
    print(f"wrote {args.rows:,} rows to {args.folder}")


if __name__ == "__main__":
    main()
