"""The run file that is proposed from a sample of Parquet rows."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from embershard.data import TaskConfig
from embershard.data.proposal import Proposal, propose
from embershard.errors import InputError
from tests.cases import refused
from tests.data.small_parquet import load, write

ROWS = 400
AT = np.arange(ROWS)


def table(**columns: Any) -> pa.Table:
    """400 rows with a label and ``columns``."""
    return pa.table({"click": (AT % 5 == 0).astype(np.int8), **columns})


def proposed(sample: pa.Table, **options: Any) -> Proposal:
    return propose(sample, files=["logs/*.parquet"], rows=10 * len(sample), **options)


def parsed(sample: pa.Table, **options: Any) -> dict[str, Any]:
    return tomllib.loads(proposed(sample, **options).toml)


def kinds(proposal: Proposal) -> dict[str, str]:
    return {column.name: column.kind for column in proposal.columns}


def test_types_and_names_decide_what_a_column_becomes() -> None:
    proposal = proposed(
        table(
            when=pa.array(AT * 1000, pa.timestamp("ms")),
            score=AT / 7,
            item_count=AT % 31,
            shop=[f"s{at % 9}" for at in AT],
            code=AT % 12,
            history=[[1, 2, int(at) % 40] for at in AT],
            row=AT,
            same=np.ones(ROWS),
            payload=[{"a": 1}] * ROWS,
            vector=[[0.5, 0.5]] * ROWS,
        )
    )

    assert kinds(proposal) == {
        "click": "label",
        "when": "split",
        "score": "dense",
        "item_count": "dense",
        "shop": "sparse",
        "code": "sparse",
        "history": "sparse",
        "row": "left out",
        "same": "left out",
        "payload": "left out",
        "vector": "left out",
    }
    assert "#   row: int64, 400 distinct, another value in nearly every row" in proposal.toml


def test_heavy_tails_get_a_logarithm_and_nulls_the_median() -> None:
    tail = np.where(AT % 20 == 0, 5000.0, 1.0)
    file = parsed(table(price=tail, level=pa.array([None, 1.0, 2.0, 3.0] * 100)))

    dense = file["data"]["dense"]
    assert dense["price"] == {"transforms": ["log1p", "standardize"]}
    assert dense["level"] == {"null": 2.0, "transforms": ["standardize"]}


def test_the_range_of_a_column_leaves_out_nan_and_counts_it() -> None:
    proposal = proposed(table(item=AT % 9, price=np.where(AT < 3, np.nan, AT / 100)))
    assert "# double, 0.03 .. 3.99, 3 NaN or infinite: write null" in proposal.toml


def test_a_list_shares_the_table_of_the_column_with_its_ids() -> None:
    items = 3 * (AT % 200)
    lists = [[int(items[at]), int(items[at - 1])] for at in AT]
    file = parsed(table(item=items, user=AT % 7, history=lists))

    assert file["data"]["sparse"]["history"] == {
        "ids": "vocabulary", "max_ids": 2, "keep": "last", "table": "item",
    }  # fmt: skip


def test_a_list_named_like_a_column_shares_its_table() -> None:
    skus = [f"s{at % 200}" for at in AT]
    recent = [[f"s{at % 100}", "rare"] for at in AT]  # Half of all skus occur.
    sparse = parsed(table(sku=skus, recent_skus=recent, past=recent))["data"]["sparse"]

    assert sparse["recent_skus"]["table"] == "sku"
    assert "table" not in sparse["past"]


@pytest.mark.parametrize("name", ["weight", "sample_weight", "example_weight"])
def test_a_column_named_weight_weighs_the_losses(name: str) -> None:
    proposal = proposed(table(item=AT % 9, **{name: AT / 100}))

    assert kinds(proposal)[name] == "weight"
    file = tomllib.loads(proposal.toml)
    assert file["data"]["weight"] == name
    assert "dense" not in file["data"]
    assert "# double, 0 .. 3.99, multiplies the losses of each row" in proposal.toml


@pytest.mark.parametrize(
    "values", [AT / 100 - 1, pa.array([None, *AT[1:] / 100]), [f"{at}kg" for at in AT % 9]]
)
def test_values_that_weigh_no_losses_are_an_input(values: Any) -> None:
    assert kinds(proposed(table(item=AT % 9, weight=values)))["weight"] in ("dense", "sparse")


def test_a_proposed_run_can_go_on_after_it_was_killed() -> None:
    assert parsed(table(item=AT % 9))["checkpoint"]["last_every_steps"] == 500


def test_rows_of_a_request_with_equal_values_give_its_scope() -> None:
    request = AT // 4
    file = parsed(
        table(
            request_id=request,
            user=[f"u{at % 30}" for at in request],
            history=[[int(at) % 50, 9] for at in request],
            item=AT % 90,
        )
    )

    assert file["data"]["request"] == "request_id"
    sparse = file["data"]["sparse"]
    scopes = {name: section.get("scope") for name, section in sparse.items()}
    assert scopes == {"user": "request", "history": "request", "item": None}
    assert file["data"]["split"] == {
        "by": "hash", "column": "request_id", "valid": 0.1, "test": 0.1,
    }  # fmt: skip


def test_lists_that_differ_in_order_are_not_equal() -> None:
    lists = [[1, 2], [2, 1]] * (ROWS // 2)
    file = parsed(table(request_id=AT // 2, history=lists, item=AT % 90))

    assert "scope" not in file["data"]["sparse"]["history"]


def test_labels_that_are_named_become_tasks() -> None:
    sample = table(item=AT % 9, seen=(AT % 2).astype(np.int32), price=AT / 3)

    assert list(parsed(sample)["tasks"]) == ["click"]
    assert list(parsed(sample, labels=["seen", "click"])["tasks"]) == ["click", "seen"]


def test_a_label_that_is_a_float_gets_the_squared_error() -> None:
    file = parsed(table(item=AT % 9, watched=AT / 3), labels=["watched"])

    assert file["tasks"]["watched"] == {"label": "watched", "loss": "mse"}


def request_table(**columns: Any) -> pa.Table:
    """Request rows with 1 to 3 candidates each and 30 users."""
    counts = AT % 3 + 1

    def lists(values: np.ndarray) -> list[list[Any]]:
        return [values[at : at + count].tolist() for at, count in zip(AT, counts, strict=True)]

    items = np.arange(ROWS + 3) % 90
    return pa.table(
        {
            "request_id": [f"r{at}" for at in AT],
            "user": [f"u{at % 30}" for at in AT],
            "history": [[int(at) % 90, 9][: at % 2 + 1] for at in AT],
            "item": lists(items),
            "tags": [[[1, 2]] * count for count in counts],
            "price": lists(items / 7),
            "click": lists((items % 5 == 0).astype(np.int8)),
            **columns,
        }
    )


def test_lists_as_long_as_the_label_make_request_rows() -> None:
    file = parsed(request_table())

    assert file["data"]["rows"] == "request"
    assert "request" not in file["data"]
    assert file["data"]["split"]["column"] == "request_id"
    assert file["data"]["dense"] == {"price": {"transforms": ["standardize"]}}
    sparse = file["data"]["sparse"]
    scopes = {name: section.get("scope") for name, section in sparse.items()}
    assert scopes == {"user": "request", "history": "request", "item": None, "tags": None}
    assert sparse["history"]["table"] == "item"
    assert sparse["tags"]["max_ids"] == 2
    assert file["tasks"] == {"click": {"label": "click"}}


def test_a_proposal_of_request_rows_is_a_valid_file(tmp_path: Path) -> None:
    files = write(tmp_path / "requests", request_table())
    file = tomllib.loads(
        propose(request_table(), files=[str(tmp_path / "requests")], rows=ROWS).toml
    )
    sections = {name: file["data"][name] for name in ("rows", "split", "dense", "sparse")}
    tasks = {name: TaskConfig(**task) for name, task in file["tasks"].items()}

    assert len(load(files, tasks=tasks, **sections).train) > 0


def test_a_scalar_label_keeps_impression_rows() -> None:
    file = parsed(table(item=AT % 9, liked=[[0, 1]] * ROWS, two=[[3, int(at)] for at in AT]))

    assert "rows" not in file["data"]


@pytest.mark.parametrize(
    ("columns", "options", "part"),
    [
        (table(item=AT % 9), {"labels": ["bought"]}, "--label"),
        (table(item=AT % 9), {"time": "when"}, "--time"),
        (table(item=AT % 9, name=["x"] * ROWS), {"time": "name"}, "--time"),
        (table(item=AT % 9), {"request": "session"}, "--request"),
        (table(), {}, "columns"),
        (request_table(buy=[[0]] * ROWS), {"labels": ["click", "buy"]}, "--label"),
        (pa.table({"item": AT % 9}), {}, "--label"),
        (table(item=AT % 9).slice(0, 0), {}, "rows"),
    ],
)
def test_refuses(columns: pa.Table, options: dict[str, Any], part: str) -> None:
    with refused(InputError, part):
        proposed(columns, **options)


def test_a_request_is_an_integer_or_a_string() -> None:
    sample = table(item=AT % 9, request_id=[[int(at)] for at in AT // 2])
    assert kinds(proposed(sample))["request_id"] == "sparse"
    with refused(InputError, "--request"):
        proposed(sample, request="request_id")
