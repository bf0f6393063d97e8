"""Scores of Parquet files."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from torch import Tensor

import embershard as es
from embershard.cli import main
from embershard.errors import DataError, InputError
from embershard.jagged import KeyedJaggedTensor
from embershard.score import BatchScorer, ScoredFiles, score_files
from embershard.score.vectors import write_vectors
from tests.score.conftest import ITEMS, ROWS, SCHEMA, Ranker, rows


@pytest.fixture(scope="module")
def scorer(package: Path) -> BatchScorer:
    return BatchScorer(package)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders with a file of one name, in row groups of 60 rows."""
    folder = tmp_path_factory.mktemp("data")
    for day, first in (("monday", 0), ("tuesday", ROWS // 2)):
        (folder / day).mkdir()
        part = rows().slice(first, ROWS // 2)
        pq.write_table(part, folder / day / "part.parquet", row_group_size=60)
    return folder


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
    pq.write_table(rows(item=item), tmp_path / "a.parquet")

    score_files(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out", keep=["user", "history"])

    source = pq.read_schema(tmp_path / "a.parquet")
    for file in (tmp_path / "out" / "a.parquet", tmp_path / "out" / "_bad" / "a.parquet"):
        schema = pq.read_schema(file)
        for name in ("user", "history"):
            assert schema.field(name).type == source.field(name).type


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
    assert "column 'price': row 7: expected a finite number, got nan" in bad["reason"][2]


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


def test_refuses_to_write_among_the_files_that_it_reads(
    scorer: BatchScorer, data: Path, tmp_path: Path
) -> None:
    shutil.copytree(data, tmp_path / "data")
    part = tmp_path / "data" / "monday" / "part.parquet"
    for files, out in ((part.parents[1], part.parents[1] / "out"), (part, part.parents[1])):
        with pytest.raises(InputError, match="--out: expected a folder apart from --data"):
            score_files(scorer, [str(files)], out)
    assert len(list((tmp_path / "data").rglob("*"))) == 4


def test_scores_that_are_there_are_skipped(
    scorer: BatchScorer, package: Path, data: Path, tmp_path: Path
) -> None:
    score_files(scorer, [str(data)], tmp_path)

    assert score_files(scorer, [str(data)], tmp_path).skipped == 2
    other = BatchScorer(package, outputs=["score"])
    with pytest.raises(InputError, match="expected scores of this file by this package"):
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
    with pytest.raises(DataError, match="expected a column 'kee' to keep"):
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

    said = "output 'score': expected a free column 'score' or 'score_score', got columns"
    with pytest.raises(InputError, match=said):
        score_files(scorer, [str(tmp_path / "a.parquet")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_each_id_gets_the_vector_of_its_first_row(
    package: Path, data: Path, tmp_path: Path
) -> None:
    scorer = BatchScorer(package, outputs=["vector"])

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


def test_vectors_start_anew_after_a_kill(package: Path, data: Path, tmp_path: Path) -> None:
    scorer = BatchScorer(package, outputs=["vector"])
    write_vectors(scorer, [str(data)], tmp_path / "whole", key="item")
    # A kill may leave scores of other files, and one result of three.
    out = tmp_path / "out"
    score_files(scorer, [str(data / "monday")], out / ".vectors.partial" / "scores", keep=["item"])
    (out / "vectors.parquet").write_bytes(b"")

    write_vectors(scorer, [str(data)], out, key="item")

    names = ["ids.npy", "vectors.npy", "vectors.parquet"]
    assert sorted(file.name for file in out.iterdir()) == names
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_vectors_need_an_output_that_is_one(package: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a vector, got 'score'"):
        write_vectors(BatchScorer(package, outputs=["score"]), [str(data)], tmp_path, key="item")


class Vectors(Ranker):
    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
        pooled = self.embeddings(sparse)
        user, item = pooled["user"] * 1.0, pooled["item"] * 1.0
        return {"score": (es.to_examples(user) * item).sum(dim=1), "user": user, "item": item}


def test_ids_of_items_are_no_keys_of_vectors_of_users(data: Path, tmp_path: Path) -> None:
    package = es.export_model(Vectors(), SCHEMA, tmp_path / "vectors" / "1")
    users, items = (BatchScorer(package, outputs=[name]) for name in ("user", "item"))

    said = (
        "--key: expected a column of request scope for output 'user', which has one value a "
        "request, got 'item' of input 'item'"
    )
    with pytest.raises(InputError, match=f"^{said}"):
        write_vectors(users, [str(data)], tmp_path / "out", key="item")
    assert not (tmp_path / "out").exists()
    write_vectors(users, [str(data)], tmp_path / "users", key="user")
    write_vectors(users, [str(data)], tmp_path / "others", key="key")
    assert write_vectors(items, [str(data)], tmp_path / "items", key="item")[0] <= ITEMS


def test_a_repeated_command_says_that_all_is_scored(
    package: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["score", str(package), "--data", str(data), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert f"scored {ROWS} rows of 2 files into {tmp_path / 'out'}, " in capsys.readouterr().out
    assert main(command) == 0
    assert capsys.readouterr().out == (
        f"nothing to do: the scores of 2 files are in {tmp_path / 'out'} already\n"
    )
