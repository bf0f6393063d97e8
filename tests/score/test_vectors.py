"""Vectors of the ids of Parquet files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import Tensor

import embershard as es
from embershard.errors import DataError, InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.score import BatchScorer
from embershard.score.vectors import write_vectors
from tests.cases import refused
from tests.score.conftest import ITEMS, SCHEMA, Ranker, rows


@pytest.fixture(scope="module")
def scorer(package: Path) -> BatchScorer:
    return BatchScorer(package, outputs=["vector"])


class Vectors(Ranker):
    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
        pooled = self.embeddings(sparse)
        user, item = pooled["user"] * 1.0, pooled["item"] * 1.0
        return {"score": (es.to_examples(user) * item).sum(dim=1), "user": user, "item": item}


def item_rows(keys: Any, items: list[int]) -> pa.Table:
    table = rows().slice(0, len(items)).drop_columns(["key", "item"])
    return table.append_column("sku", pa.array(keys)).append_column(
        "item", pa.array(items, pa.int64())
    )


def vectors_of(scorer: BatchScorer, items: list[int]) -> np.ndarray:
    return np.stack(scorer(item_rows(items, items))["vector"].to_numpy())


def test_each_id_gets_the_vector_of_its_first_row(
    scorer: BatchScorer, data: Path, tmp_path: Path
) -> None:
    count, width = write_vectors(scorer, [str(data)], tmp_path, key="item")

    items = list(dict.fromkeys(rows()["item"].to_pylist()))
    assert (count, width) == (len(items), 8)
    table = pq.read_table(tmp_path / "vectors.parquet")
    assert table["id"].to_pylist() == items
    assert np.load(tmp_path / "ids.npy").tolist() == items
    vectors = np.load(tmp_path / "vectors.npy")
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), vectors)
    scored = scorer(rows())
    first = rows()["item"].to_pylist().index(items[-1])
    np.testing.assert_array_equal(vectors[-1], scored["vector"][first].as_py())


def test_vectors_start_anew_after_a_kill(scorer: BatchScorer, data: Path, tmp_path: Path) -> None:
    write_vectors(scorer, [str(data)], tmp_path / "whole", key="item")
    # A kill may leave the folder, and one result of three.
    out = tmp_path / "out"
    (out / ".vectors.partial").mkdir(parents=True)
    (out / "vectors.parquet").write_bytes(b"")

    write_vectors(scorer, [str(data)], out, key="item")

    names = ["ids.npy", "vectors.npy", "vectors.parquet"]
    assert sorted(file.name for file in out.iterdir()) == names
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_vectors_need_an_output_that_is_one(package: Path, data: Path, tmp_path: Path) -> None:
    with refused(InputError, "got 'score'"):
        write_vectors(BatchScorer(package, outputs=["score"]), [str(data)], tmp_path, key="item")


def test_ids_of_items_are_no_keys_of_vectors_of_users(data: Path, tmp_path: Path) -> None:
    package = es.export_model(Vectors(), SCHEMA, tmp_path / "vectors" / "1")
    users, items = (BatchScorer(package, outputs=[name]) for name in ("user", "item"))

    said = (
        "--key: expected a column of request scope for output 'user', which has one value a "
        "request, got 'item' of input 'item'"
    )
    with refused(InputError, said):
        write_vectors(users, [str(data)], tmp_path / "out", key="item")
    assert not (tmp_path / "out").exists()
    write_vectors(users, [str(data)], tmp_path / "users", key="user")
    write_vectors(users, [str(data)], tmp_path / "others", key="key")
    assert write_vectors(items, [str(data)], tmp_path / "items", key="item")[0] <= ITEMS


def test_the_first_row_of_an_id_in_the_order_of_the_data_counts(
    scorer: BatchScorer, tmp_path: Path
) -> None:
    tables = {
        "z/b.parquet": item_rows([8, 9, 8, 7], [1, 2, 3, 4]),
        "_a.parquet": item_rows([9, 5], [5, 6]),
        "a.parquet": item_rows([7, 5, 6, 6], [7, 8, 9, 10]),
    }
    for name, table in tables.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / name, row_group_size=2)

    paths = [str(tmp_path / name) for name in tables]
    count, _ = write_vectors(scorer, paths, tmp_path / "out", key="sku")

    assert count == 5
    assert np.load(tmp_path / "out" / "ids.npy").tolist() == [8, 9, 7, 5, 6]
    vectors = np.load(tmp_path / "out" / "vectors.npy")
    np.testing.assert_array_equal(vectors, vectors_of(scorer, [1, 2, 4, 6, 9]))


KEYS = {
    "int32": (pa.array([3, 1, 3], pa.int32()), np.array([3, 1], np.int32)),
    "uint64": (pa.array([2**64 - 1, 1, 1], pa.uint64()), np.array([2**64 - 1, 1], np.uint64)),
    "strings": (pa.array(["b", "\u00e9a", "b"]), np.array(["b", "\u00e9a"])),
    "large strings": (pa.array(["b", "a", "b"], pa.large_string()), np.array(["b", "a"])),
    "categories": (pa.array(["b", "a", "b"]).dictionary_encode(), np.array(["b", "a"])),
    "no strings": (pa.array([], pa.string()), np.array([], np.str_)),
}


@pytest.mark.parametrize(("keys", "ids"), KEYS.values(), ids=KEYS)
def test_ids_are_a_plain_array_of_numpy(
    keys: pa.Array, ids: np.ndarray, scorer: BatchScorer, tmp_path: Path
) -> None:
    pq.write_table(item_rows(keys, list(range(len(keys)))), tmp_path / "a.parquet")

    write_vectors(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out", key="sku")

    saved = np.load(tmp_path / "out" / "ids.npy")
    assert saved.dtype == ids.dtype
    np.testing.assert_array_equal(saved, ids)
    table = pq.read_table(tmp_path / "out" / "vectors.parquet")
    assert table["id"].type == keys.type
    assert table["id"].to_pylist() == ids.tolist()


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        ([[1, 2, 3, None]], ["0.parquet: row group 1: column 'sku': row 3", "null"]),
        ([[1, 2], ["a", "b"]], ["--key", "got both integers and strings"]),
        ([[0.5, 1.5]], ["column 'sku'", "got double"]),
    ],
)
def test_keys_that_are_no_ids_are_refused(
    keys: list[list[Any]], parts: str, scorer: BatchScorer, tmp_path: Path
) -> None:
    for number, values in enumerate(keys):
        table = item_rows(values, [1] * len(values))
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)

    with refused(DataError, *parts):
        write_vectors(scorer, [str(tmp_path)], tmp_path / "out", key="sku")
    assert not (tmp_path / "out").exists()


def test_rows_without_a_vector_are_counted(scorer: BatchScorer, tmp_path: Path) -> None:
    pq.write_table(item_rows([1, 2, 3], [99, 2, 98]), tmp_path / "a.parquet")

    with refused(DataError, "2 rows have no vector; the first:", ": row 0:"):
        write_vectors(scorer, [str(tmp_path)], tmp_path / "out", key="sku")


def test_a_key_may_have_the_name_of_the_output(tmp_path: Path) -> None:
    package = es.export_model(Vectors(), SCHEMA, tmp_path / "items" / "1")
    scorer = BatchScorer(package, outputs=["item"])
    pq.write_table(rows(), tmp_path / "a.parquet")

    write_vectors(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out", key="item")

    items = list(dict.fromkeys(rows()["item"].to_pylist()))
    assert np.load(tmp_path / "out" / "ids.npy").tolist() == items


def test_vectors_leave_their_own_sources_alone(scorer: BatchScorer, tmp_path: Path) -> None:
    pq.write_table(item_rows([1], [1]), tmp_path / "a.parquet")
    for overwrite in (False, True):
        count, _ = write_vectors(scorer, [str(tmp_path)], tmp_path, key="sku", overwrite=overwrite)
        assert count == 1

    source = tmp_path / "q" / "vectors.parquet"
    source.parent.mkdir()
    pq.write_table(item_rows([1], [1]), source)
    with refused(InputError, "would replace", "/vectors.parquet"):
        write_vectors(scorer, [str(source)], source.parent, key="sku", overwrite=True)
