"""Settings that a process makes for itself if it only serves."""

import os

import pytest

from embershard.serving.server_process.system import stop_waiting_for_reader
from tests.serving.blocked_pipe import fill, small_pipe


def test_only_other_processes_wait_for_the_reader_of_a_full_pipe():
    with small_pipe() as (_, writing):
        descriptor = os.dup(writing)  # Another process has such a descriptor.
        stop_waiting_for_reader(descriptor)
        fill(writing)
        with pytest.raises(BlockingIOError):
            os.write(descriptor, b"a line\n")
        os.close(descriptor)
        assert os.get_blocking(writing)


def test_a_file_keeps_its_place(tmp_path):
    """Opened anew, each would write over what the other wrote."""
    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(b"before ")
        stop_waiting_for_reader(file.fileno())
        file.write(b"behind")
    assert (tmp_path / "log").read_bytes() == b"before behind"


def test_a_pipe_that_nobody_reads_any_more_stays_as_it_is():
    reading, writing = os.pipe()
    os.close(reading)
    stop_waiting_for_reader(writing)
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"a line\n")
    os.close(writing)
