"""The data appears completely in its folder or not at all. Failures say what was tried."""

import subprocess
import zipfile

from embershard.data import fetch
from embershard.data.fetch import FILES, FOLDER_IN_WHEEL, download_wheel, fetch_movielens
from embershard.errors import DataError
from tests.cases import refused


def wheel_with(names):
    """A download function that writes a wheel with the files ``names``."""

    def download(folder):
        path = folder / "recbole-1.2.1-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(FOLDER_IN_WHEEL + name, f"content of {name}")
        return path

    return download


def must_not_download(folder):
    raise AssertionError("the cache was complete")


def test_files_are_unpacked_once(tmp_path):
    cache = tmp_path / "deep" / "movielens-100k"

    assert fetch_movielens(cache, download=wheel_with([*FILES, "ml-100k.kg"])) == cache
    assert sorted(path.name for path in cache.iterdir()) == sorted(FILES)
    assert (cache / FILES[0]).read_text() == f"content of {FILES[0]}"
    assert [path.name for path in cache.parent.iterdir()] == ["movielens-100k"]
    assert fetch_movielens(cache, download=must_not_download) == cache


def test_a_wheel_without_the_data_leaves_nothing_behind(tmp_path):
    cache = tmp_path / "movielens-100k"

    with refused(DataError, "ml-100k.item"):
        fetch_movielens(cache, download=wheel_with(FILES[:2]))

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_wheel_is_refused(tmp_path):
    def download(folder):
        (folder / "x.whl").write_bytes(b"not a zip")
        return folder / "x.whl"

    with refused(DataError, "could not be fetched: File is not a zip file"):
        fetch_movielens(tmp_path / "movielens-100k", download=download)


def test_another_folder_of_that_name_is_left_alone(tmp_path):
    cache = tmp_path / "movielens-100k"
    cache.mkdir()
    (cache / "thesis.txt").write_text("precious")

    with refused(DataError, "got something else"):
        fetch_movielens(cache, download=wheel_with(FILES))

    assert (cache / "thesis.txt").read_text() == "precious"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_race_that_another_process_wins_is_no_error(tmp_path):
    cache = tmp_path / "movielens-100k"

    def download(folder):
        fetch_movielens(cache, download=wheel_with(FILES))
        return wheel_with(FILES)(folder)

    assert fetch_movielens(cache, download=download) == cache


def test_a_failing_pip_is_told_with_its_command_and_last_line(tmp_path, monkeypatch):
    def run(command, **_):
        raise subprocess.CalledProcessError(1, command, stderr="Looking\nERROR: no route\n")

    monkeypatch.setattr(fetch.subprocess, "run", run)

    with refused(DataError, "pip download", "exit 1: ERROR: no route", "--data PATH"):
        fetch_movielens(tmp_path / "movielens-100k")


def test_a_silent_pip_is_given_up(tmp_path, monkeypatch):
    def run(command, *, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(fetch.subprocess, "run", run)

    with refused(DataError, "no answer in 300 s"):
        download_wheel(tmp_path)


def test_a_pip_that_downloads_nothing_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch.subprocess, "run", lambda command, **_: None)

    with refused(DataError, "got 0"):
        download_wheel(tmp_path)
