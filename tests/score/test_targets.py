"""Sources of scores, and the files that the scores are written to."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from embershard.data.parquet_files import SourceFile
from embershard.errors import DataError, InputError
from embershard.score import BatchScorer, score_files
from embershard.score.targets import target_paths
from tests.cases import refused
from tests.score.conftest import rows


@pytest.fixture(scope="module")
def scorer(package: Path) -> BatchScorer:
    return BatchScorer(package, outputs=["score"])


def write_rows(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(40), path)


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


LAYOUTS = {
    "a single file": (["a.parquet"], ["a.parquet"]),
    "files of one folder": (["q/a.parquet", "q/b.parquet"], ["a.parquet", "b.parquet"]),
    "a folder above": (["a.parquet", "../a.parquet"], ["here/a.parquet", "a.parquet"]),
    "folders beside": (["../p/a.parquet", "../q/a.parquet"], ["p/a.parquet", "q/a.parquet"]),
    "relative and absolute": (
        ["q/a.parquet", "/x.parquet"], ["srv/here/q/a.parquet", "x.parquet"],
    ),
    "URLs of local files": (
        ["file:///d/p/a.parquet", "file:///d/q/a.parquet"], ["p/a.parquet", "q/a.parquet"],
    ),
    "URLs and paths of local files": (
        ["file:///srv/p/a.parquet", "../q/a.parquet"], ["p/a.parquet", "q/a.parquet"],
    ),
    "folders of a bucket": (
        ["s3://b/p/a.parquet", "s3://b/q/a.parquet"], ["p/a.parquet", "q/a.parquet"],
    ),
    "buckets": (["s3://b/a.parquet", "s3://c/a.parquet"], ["b/a.parquet", "c/a.parquet"]),
    "other file systems": (
        ["s3://b/a.parquet", "/d/a.parquet"], ["s3/b/a.parquet", "file/d/a.parquet"],
    ),
    "parents of a bucket": (
        ["s3://b/../../../../a.parquet", "s3://b/q/a.parquet"], ["a.parquet", "s3/b/q/a.parquet"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_scores_lie_as_sources_below_their_common_folder(
    sources: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "/srv/here")
    files = [SourceFile(source, 0, 0) for source in sources]

    assert target_paths(files, Path("/out")) == expected


def test_nothing_is_written_outside_the_folder_of_scores(
    scorer: BatchScorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    write_rows(here / "x.parquet", tmp_path / "q" / "x.parquet")
    monkeypatch.chdir(here)

    score_files(scorer, ["x.parquet", "../q/x.parquet"], Path("out"))

    assert files_below(here / "out") == ["here/x.parquet", "q/x.parquet"]
    assert len(files_below(tmp_path)) == 4


SAME_FILES = {
    "the folder of the data": ("data", "data"),
    "a file's own folder": ("data/a.parquet", "data"),
    "a URL of the folder": ("file://{}/data", "data"),
    "a link to the folder": ("data", "link"),
    "the folder of another source": ("**/a.parquet", "data"),
}


@pytest.mark.parametrize(("source", "out"), SAME_FILES.values(), ids=SAME_FILES)
def test_no_source_is_replaced_by_scores(
    source: str, out: str, scorer: BatchScorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "a.parquet", tmp_path / "data" / "a.parquet")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path)

    with refused(InputError, "--out:", "would replace", "/data/a.parquet"):
        score_files(scorer, [source.format(tmp_path)], Path(out), overwrite=True)
    assert files_below(tmp_path) == ["a.parquet", "data/a.parquet"]


def test_two_sources_never_share_a_file_of_scores(scorer: BatchScorer, tmp_path: Path) -> None:
    files = [tmp_path / "_bad" / "a.parquet", tmp_path / "a.parquet"]
    write_rows(*files)

    with refused(InputError, "--data"):
        score_files(scorer, [str(file) for file in files], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pattern", ["", "**/*.parquet", "file://"])
def test_a_run_leaves_out_the_scores_of_the_run_before(
    pattern: str, scorer: BatchScorer, tmp_path: Path
) -> None:
    write_rows(tmp_path / "a.parquet", tmp_path / "q" / "b.parquet")
    data = f"{pattern}{tmp_path}" if pattern == "file://" else str(tmp_path / pattern)
    out = tmp_path / "q" / "out"
    score_files(scorer, [data], out)
    expected = files_below(tmp_path)

    again = score_files(scorer, [data], out)

    assert (again.files, again.skipped) == (0, 2)
    assert files_below(tmp_path) == expected
    with refused(DataError, "--data:", "found only scores in --out"):
        score_files(scorer, [str(out)], out)
    with refused(InputError, "--out: expected a folder"):
        score_files(scorer, [data], next(out.rglob("*.parquet")))
