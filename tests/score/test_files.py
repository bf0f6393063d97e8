"""Scores of Parquet files."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embershard.cli import main
from embershard.errors import DataError, InputError
from embershard.score import BatchScorer, ScoredFiles, score_files
from tests.cases import refused
from tests.score.conftest import ITEMS, ROWS, rows


@pytest.fixture(scope="module")
def scorer(package: Path) -> BatchScorer:
    return BatchScorer(package)


def test_files_keep_their_rows_order_and_columns(
    scorer: BatchScorer, data: Path, tmp_path: Path
) -> None:
    scored = score_files(scorer, [str(data)], tmp_path / "out", keep=["key", "item"])

    assert scored == ScoredFiles(files=2, skipped=0, rows=ROWS, bad_rows=0)
    assert not (tmp_path / "out" / "_bad").exists()
    expected = scorer(rows())
    for day, first in (("monday", 0), ("tuesday", ROWS // 2)):
        table = pq.read_table(tmp_path / "out" / day / "part.parquet")
        assert table.column_names == ["key", "item", "score", "vector"]
        part = expected.slice(first, ROWS // 2)
        assert table["key"].to_pylist() == part["key"].to_pylist()
        np.testing.assert_allclose(
            table["score"].to_numpy(), part["score"].to_numpy(), rtol=0, atol=1e-6
        )


def test_kept_columns_have_the_types_of_their_source(scorer: BatchScorer, tmp_path: Path) -> None:
    item = rows()["item"].to_numpy().copy()
    item[5] = ITEMS
    text = rows()["user"].combine_chunks()
    kept = {
        "large": text.cast(pa.large_string()),
        "category": text.dictionary_encode(),
        "binary": text.cast(pa.binary()),
        "texts": pa.array([[name] for name in text.to_pylist()]),
        "struct": pa.array([{"name": name} for name in text.to_pylist()]),
    }
    source = rows(item=item, **kept)
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(source, data / "a.parquet", row_group_size=60)
    pq.write_table(source.slice(0, 0), data / "empty.parquet")

    score_files(scorer, [str(data)], tmp_path / "out")

    for file in ("a.parquet", "empty.parquet", "_bad/a.parquet"):
        schema = pq.read_schema(tmp_path / "out" / file)
        types = {name: schema.field(name).type for name in source.column_names}
        assert types == {field.name: field.type for field in source.schema}


def test_numbers_of_bad_rows_lie_beside_kept_columns_named_row(
    scorer: BatchScorer, tmp_path: Path
) -> None:
    item = rows()["item"].to_numpy().copy()
    item[5] = ITEMS
    kept = {name: [f"{name} {key}" for key in range(ROWS)] for name in ("row", "bad_row", "reason")}
    pq.write_table(rows(item=item, **kept), tmp_path / "a.parquet")

    score_files(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out", keep=list(kept))

    bad = pq.read_table(tmp_path / "out" / "_bad" / "a.parquet")
    assert bad.column_names == ["bad_bad_row", "bad_reason", "row", "bad_row", "reason"]
    assert [values[0] for values in bad.to_pydict().values()][2:] == [
        "row 5",
        "bad_row 5",
        "reason 5",
    ]
    assert bad["bad_bad_row"].to_pylist() == [5]
    assert "id 50" in bad["bad_reason"][0].as_py()


def test_bad_rows_go_to_a_file_of_their_own(scorer: BatchScorer, tmp_path: Path) -> None:
    item = rows()["item"].to_numpy().copy()
    item[[5, 6, 200]] = ITEMS + 1
    price = rows()["price"].to_numpy().copy()
    price[7] = np.nan
    pq.write_table(rows(item=item, price=price), tmp_path / "a.parquet")

    scored = score_files(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out", keep=["key"])

    assert scored.bad_rows == 4
    good = pq.read_table(tmp_path / "out" / "a.parquet")
    assert good["key"].to_pylist() == [key for key in range(ROWS) if key not in (5, 6, 7, 200)]
    bad = pq.read_table(tmp_path / "out" / "_bad" / "a.parquet").to_pydict()
    assert bad["row"] == bad["key"] == [5, 6, 7, 200]
    assert "id 51" in bad["reason"][0]
    assert "column 'price': row 7: expected a finite float32, got nan" in bad["reason"][2]


def test_a_run_that_was_ended_goes_on_where_it_was(
    scorer: BatchScorer, data: Path, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    score_files(scorer, [str(data)], whole)
    for moment in range(10):
        shutil.rmtree(parts, ignore_errors=True)
        calls = 0

        def end(done: int, total: int, moment: int = moment) -> None:
            nonlocal calls
            calls += 1
            if calls > moment % 6:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            score_files(scorer, [str(data)], parts, progress=end)
        assert not list(parts.rglob("*.partial"))
        score_files(scorer, [str(data)], parts)
        for file in whole.rglob("*.parquet"):
            assert (parts / file.relative_to(whole)).read_bytes() == file.read_bytes()


KILLED = """
import os, signal, sys
from pathlib import Path
from embershard.score import BatchScorer, score_files

def kill(done, total):
    if done > total * 0.6:
        os.kill(os.getpid(), signal.SIGKILL)

score_files(BatchScorer(sys.argv[1]), [sys.argv[2]], Path(sys.argv[3]), progress=kill)
"""


def test_a_killed_run_resumes_to_the_same_bytes(
    scorer: BatchScorer, package: Path, tmp_path: Path
) -> None:
    data, whole, parts = (tmp_path / name for name in ("data", "whole", "parts"))
    data.mkdir()
    item = rows()["item"].to_numpy().copy()
    item[[5, 200]] = ITEMS
    for number in range(8):
        pq.write_table(rows(item=item), data / f"{number}.parquet", row_group_size=60)
    score_files(scorer, [str(data)], whole)
    expected = {file.relative_to(whole): file.read_bytes() for file in whole.rglob("*.parquet")}

    ended = subprocess.run([sys.executable, "-c", KILLED, str(package), str(data), str(parts)])
    assert ended.returncode == -signal.SIGKILL
    assert [file.name for file in sorted(parts.rglob("*.partial"))] == [
        ".4.parquet.partial", ".4.parquet.partial",
    ]  # fmt: skip
    resumed = score_files(scorer, [str(data)], parts)

    assert resumed == ScoredFiles(files=4, skipped=4, rows=4 * ROWS, bad_rows=16)
    assert len(expected) == 16
    assert expected == {
        file.relative_to(parts): file.read_bytes() for file in parts.rglob("*") if file.is_file()
    }


def test_scores_that_are_there_are_skipped(
    scorer: BatchScorer, package: Path, data: Path, tmp_path: Path
) -> None:
    score_files(scorer, [str(data)], tmp_path)

    assert score_files(scorer, [str(data)], tmp_path).skipped == 2
    other = BatchScorer(package, outputs=["score"])
    with refused(InputError, tmp_path):
        score_files(other, [str(data)], tmp_path)
    assert score_files(other, [str(data)], tmp_path, overwrite=True).files == 2


def test_a_file_without_rows_gives_one_without_rows(scorer: BatchScorer, tmp_path: Path) -> None:
    pq.write_table(rows().slice(0, 0), tmp_path / "a.parquet")

    score_files(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out", keep=["key"])

    table = pq.read_table(tmp_path / "out" / "a.parquet")
    assert (table.column_names, len(table)) == (["key", "score", "vector"], 0)


def test_a_column_that_cannot_be_kept_is_refused_first(
    scorer: BatchScorer, data: Path, tmp_path: Path
) -> None:
    with refused(DataError, "'kee'"):
        score_files(scorer, [str(data)], tmp_path / "out", keep=["kee"])
    assert not (tmp_path / "out").exists()


def test_an_output_beside_a_label_of_its_name_gets_a_suffix(
    scorer: BatchScorer, tmp_path: Path
) -> None:
    labels = rows()["key"].to_numpy() % 2
    labelled, plain = rows(score=labels), rows()
    for name, table in (("labelled", labelled), ("plain", plain)):
        pq.write_table(table, tmp_path / f"{name}.parquet")

    for out, keep in (("all", None), ("kept", ["score"])):
        score_files(scorer, [str(tmp_path / "labelled.parquet")], tmp_path / out, keep=keep)
        table = pq.read_table(tmp_path / out / "labelled.parquet")
        assert table.column_names[-3:] == ["score", "score_score", "vector"]
        assert table["score"].to_pylist() == labels.tolist()
        assert table["score_score"].to_pylist() == scorer(plain)["score"].to_pylist()

    arrays = {name: labelled[name].to_numpy(zero_copy_only=False) for name in labelled.column_names}
    expected = scorer(plain)["score"].to_numpy()
    for scored in (scorer(labelled), scorer(arrays)):
        np.testing.assert_array_equal(np.asarray(scored["score"]), labels)
        np.testing.assert_array_equal(np.asarray(scored["score_score"]), expected)


def test_files_get_the_same_columns_if_only_one_has_the_label(
    scorer: BatchScorer, tmp_path: Path
) -> None:
    pq.write_table(rows(score=rows()["key"]), tmp_path / "labelled.parquet")
    pq.write_table(rows(), tmp_path / "plain.parquet")

    score_files(scorer, [str(tmp_path / "*.parquet")], tmp_path / "out")

    for name in ("labelled", "plain"):
        assert "score_score" in pq.read_schema(tmp_path / "out" / f"{name}.parquet").names


def test_an_output_without_a_free_name_is_refused(scorer: BatchScorer, tmp_path: Path) -> None:
    taken = rows(score=rows()["key"], score_score=rows()["key"])
    pq.write_table(taken, tmp_path / "a.parquet")

    with refused(InputError, "output 'score'", "'score_score'"):
        score_files(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_repeated_command_says_that_all_is_scored(
    package: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["score", str(package), "--data", str(data), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert f"scored {ROWS} rows of 2 files into {tmp_path / 'out'}, " in capsys.readouterr().out
    assert main(command) == 0
    assert capsys.readouterr().out == (
        f"nothing to do: {tmp_path / 'out'} already has the scores of 2 files\n"
    )
