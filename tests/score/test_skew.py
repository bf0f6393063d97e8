"""Served requests beside training rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embershard._proto import predictor_pb2 as pb
from embershard.cli import main
from embershard.data.parquet_columns import Rows
from embershard.errors import DataError, InputError
from embershard.package import SampleRequest
from embershard.package.id_maps import Hash
from embershard.package.samples import SampleLists
from embershard.package.schema import Schema, SparseInput
from embershard.score import BatchScorer
from embershard.score.requests import unpack_requests
from embershard.score.skew import Skew, _side_of_requests, compare
from tests.bench.recordings import call, write_recording
from tests.cases import refused
from tests.score.conftest import ITEMS, ROWS, SCHEMA, rows


@pytest.fixture(scope="module")
def scorer(package: Path) -> BatchScorer:
    return BatchScorer(package)


def recorded(scorer: BatchScorer, path: Path, table: pa.Table) -> Path:
    """A recording of the requests that the rows make, answered by the package."""
    [batch] = table.combine_chunks().to_batches()
    prepared = scorer.prepare(Rows(batch, "rows", 0, np.arange(len(batch))))
    outputs = scorer.run(prepared).outputs
    schema = int(scorer.package.manifest.fingerprint, 16)
    calls = []
    for request, first, stop, _ in prepared.requests:
        packed = pb.Packed(
            schema=schema,
            request_dense=request.request_dense.tobytes(),
            example_dense=request.example_dense.tobytes(),
            lengths=request.lengths.tobytes(),
            values=request.values.tobytes(),
        )
        message = pb.PredictRequest(num_examples=request.num_examples, packed=packed)
        response = pb.PredictResponse()
        for name, values in outputs.items():
            part = values[first:stop]
            response.outputs.add(name=name, values=part.tobytes(), shape=part.shape)
        calls.append(call(message.SerializeToString(), first, response=response))
    return write_recording(path, calls, schema=schema)


def compared(
    scorer: BatchScorer, tmp_path: Path, train: pa.Table, served: pa.Table, **limits: int
) -> Skew:
    pq.write_table(train, tmp_path / "train.parquet", row_group_size=60)
    recording = recorded(scorer, tmp_path / "calls", served)
    return compare(
        scorer,
        recording,
        [str(tmp_path / "train.parquet")],
        **{"requests": 10_000, "rows": 10_000, **limits},
    )


def test_requests_give_back_the_rows_they_were_made_of(scorer: BatchScorer) -> None:
    table = rows()
    [batch] = table.combine_chunks().to_batches()
    prepared = scorer.prepare(Rows(batch, "rows", 0, np.arange(len(batch))))
    assert len(prepared.requests) < ROWS

    dense, sparse = unpack_requests(SCHEMA, [part.request for part in prepared.requests])

    columns = table.to_pydict()
    np.testing.assert_array_equal(dense[:, 0], np.float32(columns["hour"]))
    np.testing.assert_array_equal(dense[:, 1], columns["price"])
    _, history, item = sparse
    parts = np.split(history.values, history.offsets[1:-1])
    assert [part.tolist() for part in parts] == columns["history"]
    assert item.values.tolist() == columns["item"]
    assert item.lengths.tolist() == [1] * ROWS


def test_of_a_long_list_only_ids_that_the_model_sees_count() -> None:
    schema = Schema(sparse=[SparseInput("history", "request", Hash(9), max_ids=2, keep="last")])
    lists = SampleLists(np.array([3]), np.array([7, 8, 9]), None)
    request = SampleRequest.of_lists(np.empty(0, np.float32), np.empty((2, 0), np.float32), [lists])

    [history] = _side_of_requests(schema, [request], {}).sparse

    assert history.values.tolist() == [8, 9, 8, 9]
    assert history.lengths.tolist() == [2, 2]


def test_rows_beside_themselves_have_no_drift(scorer: BatchScorer, tmp_path: Path) -> None:
    skew = compared(scorer, tmp_path, rows(), rows())

    assert (skew.rows, skew.examples) == (ROWS, ROWS)
    assert {(figure.kind, figure.name) for figure in skew.figures} == {
        ("values", "hour"), ("values", "price"),
        ("ids", "user"), ("ids", "history"), ("ids", "item"),
        ("lengths", "user"), ("lengths", "history"), ("lengths", "item"),
        ("unknown ids", "item"),
        ("scores", "score"), ("scores", "vector"),
    }  # fmt: skip
    assert all(figure.drift == 0 for figure in skew.figures)
    assert skew.to_text().splitlines()[-1] == "nothing moved much (drift above 0.25)"


def test_each_planted_move_is_found_and_no_other(scorer: BatchScorer, tmp_path: Path) -> None:
    served = rows(
        price=np.full(ROWS, 9, np.float32),
        history=[[3, 5]] * ROWS,
        item=np.arange(ROWS) % 5,
    )

    skew = compared(scorer, tmp_path, rows(), served)

    moved = {(figure.kind, figure.name) for figure in skew.moved() if figure.kind != "scores"}
    assert moved == {
        ("values", "price"), ("ids", "history"), ("lengths", "history"), ("ids", "item"),
    }  # fmt: skip
    figures = {(figure.kind, figure.name): figure for figure in skew.figures}
    assert figures["values", "price"].served == 9
    assert figures["lengths", "history"].served == 2
    assert figures["ids", "item"].served == 5
    first = skew.moved()[0]
    assert f"since training: {first.kind} of {first.name} {first.drift:.2f}" in skew.to_text()


def test_scores_are_compared_too(scorer: BatchScorer, tmp_path: Path) -> None:
    train, served = rows(), rows(price=np.full(ROWS, 9, np.float32))

    skew = compared(scorer, tmp_path, train, served)

    [score] = [figure for figure in skew.figures if figure[:2] == ("scores", "score")]
    means = [float(scorer(table)["score"].to_numpy().mean()) for table in (train, served)]
    np.testing.assert_allclose([score.train, score.served], means, rtol=1e-5)
    assert score.drift > 0.25


def test_unknown_ids_count_in_rows_without_scores(scorer: BatchScorer, tmp_path: Path) -> None:
    items = np.arange(ROWS) % ITEMS
    items[::3] = ITEMS + 7

    skew = compared(scorer, tmp_path, rows(item=items), rows())

    [unknown] = [figure for figure in skew.figures if figure.kind == "unknown ids"]
    assert (unknown.train, unknown.served) == (pytest.approx(1 / 3), 0)
    assert len(skew.bad_rows) == ROWS // 3
    assert "training rows without scores: 100; the first: " in skew.to_text()


def test_rows_and_requests_are_limited(scorer: BatchScorer, tmp_path: Path) -> None:
    every = compared(scorer, tmp_path, rows(), rows())
    some = compared(scorer, tmp_path, rows(), rows(), requests=10, rows=50)

    assert every.requests > 20
    assert some.requests <= 10
    assert some.rows <= 60


def test_rows_that_make_no_request_are_refused(scorer: BatchScorer, tmp_path: Path) -> None:
    train = rows(hour=pa.array([None] * ROWS, pa.float32()))

    with refused(DataError, "got none; the first of 300:", "'hour'"):
        compared(scorer, tmp_path, train, rows())


def test_only_the_flag_makes_drift_an_error(
    scorer: BatchScorer, package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(scorer, tmp_path, rows(), rows(price=np.full(ROWS, 9, np.float32)))
    command = ["skew", str(tmp_path / "calls"), "--package", str(package)]
    command += ["--data", str(tmp_path / "train.parquet")]

    assert main(command) == 0
    assert "moved since training: values of price" in capsys.readouterr().out.splitlines()[-1]
    assert main([*command, "--fail-above", "0.5"]) == 3
    assert main([*command, "--fail-above", "100"]) == 0
    assert main([*command, "--rows", "0"]) == 1
    assert "--rows: expected at least 1, got 0" in capsys.readouterr().err


def test_a_recording_of_another_model_is_refused(scorer: BatchScorer, tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "calls", [], schema=1)

    with refused(InputError, "expected the package's schema", "got 0000000000000001"):
        compare(scorer, recording, ["none"], requests=1, rows=1)
