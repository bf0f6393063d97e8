"""Scores of rows that hold a request each."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import Tensor, nn

import embershard as es
from embershard.cli import main
from embershard.errors import DataError, InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.score import BatchScorer
from tests.cases import refused
from tests.score.conftest import ITEMS, SCHEMA, request_rows, rows


@pytest.fixture(scope="module")
def scorer(package: Path) -> BatchScorer:
    return BatchScorer(package, rows="request")


def with_row(table: pa.Table, row: int, **values: object) -> pa.Table:
    """The table with other values in one row."""
    every = table.to_pylist()
    every[row] |= values
    return pa.Table.from_pylist(every, table.schema)


def test_a_row_has_the_scores_of_its_candidates(package: Path, scorer: BatchScorer) -> None:
    impressions = rows()
    table = request_rows(impressions)
    assert len(table) < len(impressions)

    scored = scorer(table)

    expected = BatchScorer(package)(impressions)
    assert scored.select(table.column_names) == table
    assert scored["score"].type == pa.list_(pa.float32())
    assert scored["vector"].type == pa.list_(pa.list_(pa.float32(), 8))
    for name in ("key", "score", "vector"):
        lists = scored[name].combine_chunks()
        assert lists.flatten().equals(expected[name].combine_chunks())
        assert lists.value_lengths().equals(table["item"].combine_chunks().value_lengths())


def test_a_dict_gets_an_array_of_scores_for_each_row(scorer: BatchScorer) -> None:
    table = request_rows(rows())
    arrays = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}

    scored = scorer(arrays)

    assert len(scored["vector"]) == len(table)
    assert scored["vector"][0].shape == (len(table["item"][0]), 8)
    np.testing.assert_array_equal(
        np.concatenate(scored["score"]), scorer(table)["score"].combine_chunks().flatten()
    )


def test_a_row_without_candidates_has_no_scores(scorer: BatchScorer) -> None:
    table = with_row(request_rows(rows()), 1, key=[], item=[], price=None)

    lists = scorer(table)["score"].to_pylist()

    assert lists[1] == []
    assert all(lists[:1] + lists[2:])


def test_a_request_beyond_the_limit_is_cut(
    scorer: BatchScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = request_rows(rows())
    whole = scorer(table)
    monkeypatch.setattr(scorer._reader, "_examples_max", 3)

    scored = scorer(table)

    for name in ("score", "vector"):
        np.testing.assert_allclose(
            np.stack(scored[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)),
            np.stack(whole[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)),
            rtol=1e-6,
        )


def test_a_bad_candidate_makes_its_row_bad(package: Path, tmp_path: Path) -> None:
    good = request_rows(rows())
    count = len(good["item"][1])
    table = with_row(good, 1, item=[ITEMS + 1] * count)
    table = with_row(table, 3, price=[0.5] * 9)
    table = with_row(table, 4, hour=None)
    pq.write_table(table, tmp_path / "a.parquet")
    command = ["score", str(package), "--data", str(tmp_path / "a.parquet"), "--request-rows"]

    assert main([*command, "--out", str(tmp_path / "out"), "--keep", "item"]) == 0

    written = pq.read_table(tmp_path / "out" / "a.parquet")
    expected = BatchScorer(package, rows="request")(good).to_pylist()
    kept = [row for place, row in enumerate(expected) if place not in (1, 3, 4)]
    assert written["item"].to_pylist() == [row["item"] for row in kept]
    for scores, row in zip(written["score"].to_pylist(), kept, strict=True):
        assert scores == pytest.approx(row["score"], abs=1e-6)
    bad = pq.read_table(tmp_path / "out" / "_bad" / "a.parquet").to_pydict()
    assert bad["row"] == [1, 3, 4]
    assert "row 1: feature 'item': id 51" in bad["reason"][0]
    assert "column 'item': row 3: expected 9 elements" in bad["reason"][1]
    assert "column 'hour': row 4: expected a number, got null" in bad["reason"][2]


def test_scalars_for_candidates_are_refused(scorer: BatchScorer) -> None:
    with refused(DataError, "column 'price'"):
        scorer(rows())


def test_a_package_must_have_inputs_of_candidates(tmp_path: Path) -> None:
    class Users(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            table = es.EmbeddingBagConfig(
                name="users", num_embeddings=40, embedding_dim=8, feature_names=["user"]
            )
            self.embeddings = es.EmbeddingBagCollection([table])

        def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
            return {"score": self.embeddings(sparse)["user"].sum(1)}

    schema = es.Schema(sparse=[SCHEMA.sparse[0]])
    package = es.export_model(Users(), schema, tmp_path / "users" / "1")

    with refused(InputError, "'example'"):
        BatchScorer(package, rows="request")
