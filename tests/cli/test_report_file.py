"""The file that a command writes at its end."""

import os
from pathlib import Path

import pytest

from embershard.commands.report_file import ReportFile
from embershard.errors import InputError


def test_a_file_takes_the_place_of_the_old_one_whole(tmp_path):
    path = tmp_path / "out.json"
    path.write_text("old")
    with ReportFile("--json", path) as file:
        assert path.read_text() == "old"
        file.write("new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_on_a_full_disk_the_old_file_is_kept(tmp_path, file_limit):
    path = tmp_path / "out.json"
    path.write_text("old")
    with (
        ReportFile("--json", path) as file,
        file_limit(100),
        pytest.raises(InputError),
    ):
        file.write("x" * 1000)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_report_nothing_is_left(tmp_path):
    with ReportFile("--json", tmp_path / "out.json"):
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_one(tmp_path):
    path, link = tmp_path / "out.json", tmp_path / "link.json"
    link.symlink_to(path)
    with ReportFile("--json", link) as file:
        file.write("new")
    assert link.is_symlink()
    assert path.read_text() == "new"


def test_a_pipe_is_written_as_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with ReportFile("--json", pipe) as file:
        file.write("new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)


def test_a_pipe_of_a_descriptor_is_written_as_it_is():
    """A shell's ``--json >(jq)``, or ``--json /dev/stdout`` before a pipe, is such a file."""
    reader, writer = os.pipe()
    with ReportFile("--json", Path(f"/dev/fd/{writer}")) as file:
        file.write("new")
    assert os.read(reader, 10) == b"new"
    for item in (reader, writer):
        os.close(item)
