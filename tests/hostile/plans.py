"""Faults of plans/halves.json: (case, file, field, damage).

Its shards: 0 users whole; 1, 2 items rows 0 .. 300, columns 0 .. 4 and 4 .. 8; 3 items rows
300 .. 600; 4 tags on both devices.
"""

from __future__ import annotations

from typing import Any

FILE = "plans/halves.json"


def plan(case: str, *path: str | int, value: Any, at: str = "") -> tuple[Any, ...]:
    """A case that sets one value, and is refused for that field or for the one ``at``."""

    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        document[path[-1]] = value

    where = at or ".".join(map(str, path))
    return case, FILE, where, lambda draft: draft.edit_json(FILE, edit)


PLANS = [
    plan("plan-version-unknown", "format_version", value=1),
    plan("plan-key-unknown", "surprise", value=1),
    plan("plan-key-unknown-inside", "shards", 0, "surprise", value=1),
    plan("plan-of-another-name", "name", value="default"),
    plan("plan-without-devices", "devices", value=[]),
    plan("plan-device-unknown", "devices", 1, value="tpu:0"),
    plan("plan-device-numbered-twice", "devices", 1, value="cpu:0"),
    plan("plan-device-with-leading-zero", "devices", 1, value="cpu:01"),
    plan("plan-shard-of-an-unknown-table", "shards", 0, "table", value="nobody"),
    plan("plan-shard-without-devices", "shards", 0, "devices", value=[]),
    plan("plan-shard-on-a-device-too-far", "shards", 0, "devices", value=[2]),
    plan("plan-shard-on-one-device-twice", "shards", 4, "devices", value=[1, 1]),
    plan("plan-rows-beyond-the-table", "shards", 3, "rows", value=[300, 601]),
    plan("plan-rows-backwards", "shards", 3, "rows", value=[600, 300]),
    plan("plan-rows-empty", "shards", 3, "rows", value=[300, 300]),
    plan("plan-rows-of-three-numbers", "shards", 3, "rows", value=[300, 400, 600]),
    plan("plan-rows-negative", "shards", 1, "rows", value=[-1, 300]),
    plan("plan-columns-within-a-word", "shards", 1, "columns", value=[0, 2]),
    plan("plan-columns-beyond-the-table", "shards", 2, "columns", value=[4, 12]),
    plan("plan-rows-overlapping", "shards", 3, "rows", value=[299, 600], at="shards"),
    plan("plan-columns-overlapping", "shards", 2, "columns", value=[0, 8], at="shards"),
    plan("plan-rows-left-out", "shards", 3, "rows", value=[301, 600], at="shards"),
    # The same area as the whole table: an overlap makes up for the hole.
    plan("plan-overlap-as-large-as-the-hole", "shards", 2, "columns", value=[0, 4], at="shards"),
    (
        "plan-table-left-out",
        FILE,
        "shards",
        lambda draft: draft.edit_json(FILE, lambda document: document["shards"].pop()),
    ),
    (
        "plan-no-json",
        FILE,
        "json",
        lambda draft: draft.replace(FILE, b"{"),
    ),
]
