"""Both layouts have the same result. Refusals name file, line and column."""

from pathlib import Path

import numpy as np
import pytest

from embershard.data.movielens_files import read_movielens_files
from embershard.errors import DataError
from tests.data.small_movielens import ITEMS, USERS, original_files, recbole_files, write

LAYOUTS = {"recbole": (recbole_files, "utf-8"), "original": (original_files, "latin-1")}


def test_many_ratings_of_one_second_keep_the_order_of_lines(tmp_path):
    files = recbole_files()
    rows = [(7, (1, 5, 9)[at * 7 % 3], at % 6, 100 - at % 2) for at in range(200)]
    files["ml-100k.inter"][1:] = ["\t".join(map(str, row)) for row in rows]

    log = read_movielens_files(write(tmp_path, files, encoding="utf-8"))

    assert log.ratings.tolist() == [row[2] for row in [*rows[1::2], *rows[0::2]]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_reads_in_order_of_time_and_then_of_lines(tmp_path, layout):
    files, encoding = LAYOUTS[layout]

    log = read_movielens_files(write(tmp_path, files(), encoding=encoding))

    assert log.users.tolist() == [3, 3, 7, 7]
    assert log.items.tolist() == [5, 9, 1, 5]
    assert log.ratings.tolist() == [2, 3, 5, 4]
    assert log.timestamps.tolist() == [50, 75, 100, 100]
    assert log.users.dtype == log.items.dtype == log.timestamps.dtype == np.int64
    assert log.user_table == USERS
    assert log.item_table == ITEMS


def test_lines_may_end_as_on_windows(tmp_path):
    write(tmp_path, recbole_files(), encoding="utf-8")
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert read_movielens_files(tmp_path).user_table == USERS


def test_recbole_columns_are_found_by_name(tmp_path):
    files = recbole_files()
    files["ml-100k.inter"] = [
        "\t".join([*reversed(line.split("\t")), "extra"]) for line in files["ml-100k.inter"]
    ]

    log = read_movielens_files(write(tmp_path, files, encoding="utf-8"))

    assert log.items.tolist() == [5, 9, 1, 5]


def replaced(lines, at, line):
    return [*lines[:at], line, *lines[at + 1 :]]


@pytest.mark.parametrize(
    ("file", "line", "content", "message"),
    [
        ("inter", 3, "3\t5\tx\t50", r".*#2: Row #3: CSV conversion error to double: .*'x'"),
        ("inter", 2, "3\t5\t6\t50", r"2: column 'rating': expected a number from 0 to 5, got 6"),
        (
            "inter",
            2,
            "3\t5\tnan\t50",
            r"2: column 'rating': expected a number from 0 to 5, got",
        ),
        ("inter", 2, "3\t5\t4\t5.5", r".*#3: Row #2: CSV conversion error to int64: .*'5.5'"),
        ("inter", 2, "3\t5\t4\t-1", r"2: column 'timestamp': expected seconds, at least 0, got -1"),
        ("inter", 2, "8\t5\t4\t1", r"2: column 'user_id': expected a user of the user file, got 8"),
        (
            "inter",
            2,
            "3\t6\t4\t1",
            r"2: column 'item_id': expected an item of the item file",
        ),
        ("inter", 4, "3\t5\t4", r".*Row #4: Expected 4 columns, got 3"),
        ("inter", 3, "", r".*#0: Row #3: CSV conversion error to int64: invalid value ''"),
        (
            "inter",
            1,
            "user_id:token\titem_id:token\tstars:float",
            ".*Column 'rating' .* does not exist",
        ),
        ("user", 2, "7\told\tM\tstudent\t85711", r".*#1: Row #2: CSV conversion error to int64: "),
        ("user", 3, "7\t56\tF\twriter\tT8H1N", r"3: column 'user_id': .* an id not listed before"),
        ("user", 2, f"{2**63}\t17\tM\tx\ty", r".*#0: Row #2: CSV conversion error to int64"),
    ],
)
def test_a_bad_cell_is_refused(tmp_path, file, line, content, message):
    files = recbole_files()
    name = f"ml-100k.{file}"
    files[name] = replaced(files[name], line - 1, content)
    write(tmp_path, files, encoding="utf-8")

    with pytest.raises(DataError, match=rf"{name}:\s?{message}"):
        read_movielens_files(tmp_path)


def test_a_bad_genre_flag_is_refused_with_its_line(tmp_path):
    files = original_files()
    files["u.item"] = [files["u.item"][0], files["u.item"][1][:-1] + "2", files["u.item"][2]]

    with pytest.raises(DataError, match=r"u\.item: .*Row #2: CSV conversion error to bool: .*'2'"):
        read_movielens_files(write(tmp_path, files, encoding="latin-1"))


def test_a_file_in_another_encoding_is_refused(tmp_path):
    write(tmp_path, recbole_files(), encoding="latin-1")

    with pytest.raises(DataError, match=r"ml-100k\.item: .*Row #3: .* invalid UTF8 data"):
        read_movielens_files(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path, recbole_files(), encoding="utf-8")
    (tmp_path / "ml-100k.user").unlink()

    with pytest.raises(DataError, match=r"ml-100k\.user: expected columns .*No such file"):
        read_movielens_files(tmp_path)


def test_a_folder_with_neither_layout_is_refused(tmp_path):
    with pytest.raises(DataError, match="got neither"):
        read_movielens_files(tmp_path)


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = f"ml-100k: expected a folder that holds MovieLens-100K, found none at {tmp_path}/ml"
    with pytest.raises(DataError, match=message):
        read_movielens_files(Path("ml-100k"))
