"""Scores of rows in this process."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from embershard.errors import DataError, InputError
from embershard.score import BatchScorer
from embershard.serving import LocalPredictor
from tests.cases import refused
from tests.score.conftest import ROWS, rows


@pytest.fixture(scope="module")
def scorer(package: Path) -> BatchScorer:
    return BatchScorer(package)


def test_scores_are_those_of_the_same_requests(package: Path, scorer: BatchScorer) -> None:
    table = rows()
    columns = table.to_pydict()
    shared = [
        (columns["hour"][at], columns["user"][at], columns["history"][at]) for at in range(ROWS)
    ]
    starts = [at for at in range(ROWS) if at == 0 or shared[at] != shared[at - 1]]
    predictor = LocalPredictor(package)
    requests = [
        predictor.request(
            dense={"hour": columns["hour"][first], "price": columns["price"][first:stop]},
            sparse={
                "user": [columns["user"][first]],
                "history": [columns["history"][first]],
                "item": [[item] for item in columns["item"][first:stop]],
            },
        )
        for first, stop in zip(starts, [*starts[1:], ROWS], strict=True)
    ]
    expected = [answer.outputs for answer in predictor.predict_merged(requests)]  # type: ignore[union-attr]

    scored = scorer(table)

    assert scored.column_names == [*table.column_names, "score", "vector"]
    assert scored.select(table.column_names) == table
    score = np.concatenate([outputs["score"] for outputs in expected])
    np.testing.assert_array_equal(scored["score"].to_numpy(), score)
    vector = np.concatenate([outputs["vector"] for outputs in expected])
    np.testing.assert_array_equal(np.stack(scored["vector"].to_numpy()), vector)


def test_a_dict_of_arrays_gives_a_dict(scorer: BatchScorer) -> None:
    table = rows()
    arrays = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}

    scored = scorer(arrays)

    assert set(scored) == {*arrays, "score", "vector"}
    np.testing.assert_array_equal(scored["score"], scorer(table)["score"].to_numpy())


def test_a_null_takes_the_default_of_its_input(scorer: BatchScorer) -> None:
    price = pa.array([1.0, None])
    one = rows(count=8).slice(0, 1)
    pair = pa.concat_tables([one, one]).set_column(2, "price", price)

    score = scorer(pair)["score"].to_numpy()

    assert score[0] == score[1]


def test_columns_and_outputs_may_be_named(package: Path) -> None:
    table = rows().rename_columns(["key", "hour", "price", "user", "history", "candidate"])
    scorer = BatchScorer(package, columns={"item": "candidate"}, outputs=["vector"])

    assert scorer(table).column_names == [*table.column_names, "vector"]


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (rows().drop_columns(["item"]), ["'item'"]),
        (rows(item=["a"] * ROWS, price=["b"] * ROWS), ["column 'price'"]),
        (rows(item=[70, 71] + [0] * (ROWS - 2)), ["row 0", "id 70", "1 more row"]),
        (rows(hour=[None] + [0.5] * (ROWS - 1)), ["column 'hour': row 0", "null"]),
        (rows().slice(0, 0), ["none"]),
    ],
)
def test_refuses_rows(scorer: BatchScorer, table: pa.Table, parts: list[str]) -> None:
    with refused(DataError, *parts):
        scorer(table)


def test_refuses_unknown_inputs_and_outputs(package: Path) -> None:
    with refused(InputError, "columns"):
        BatchScorer(package, columns={"itme": "x"})
    with refused(InputError, "outputs"):
        BatchScorer(package, outputs=["scores"])
