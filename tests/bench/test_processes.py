"""CPU time of processes and who listens, from a made-up /proc and from this one."""

import os
import socket
import subprocess
import sys
import time

import pytest

from embershard.bench.target import cpu_seconds, listening_processes

HEADER = (
    "sl local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n"
)


def line(address, state, inode):
    return f"0: {address} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1\n"


@pytest.fixture
def proc(tmp_path):
    """Port 8080: process 10 listens with IPv4, 11 with IPv6, 12 is a client; 13 on 8081."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(
        HEADER
        + line("0100007F:1F90", "0A", 501)
        + line("0100007F:1F90", "01", 503)
        + line("0100007F:1F91", "0A", 504)
    )
    (tmp_path / "net" / "tcp6").write_text(
        HEADER + line("00000000000000000000000001000000:1F90", "0A", 502)
    )
    for process, inode in ((10, 501), (11, 502), (12, 503), (13, 504)):
        folder = tmp_path / str(process) / "fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(f"socket:[{inode}]")
    (tmp_path / "10" / "fd" / "2").write_text("no link: as one that was closed meanwhile")
    (tmp_path / "14").mkdir()  # Gone meanwhile.
    return tmp_path


def test_listeners_of_a_port_are_found(proc):
    assert listening_processes(8080, proc=proc) == [10, 11]
    assert listening_processes(8081, proc=proc) == [13]
    assert listening_processes(8082, proc=proc) == []


def test_listeners_are_found_by_a_kernel_without_ipv6(proc):
    (proc / "net" / "tcp6").unlink()
    assert listening_processes(8080, proc=proc) == [10]


def test_time_is_read_behind_a_name_with_parentheses(proc):
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["S", *["1"] * 10, str(3 * ticks), str(2 * ticks), "7"]
    (proc / "10" / "stat").write_text(f"10 (a) b) {' '.join(fields)}\n")
    assert cpu_seconds([10], proc=proc) == 5.0
    assert cpu_seconds([10, 11], proc=proc) is None


def test_own_time_lies_between_two_readings_of_the_process_clock():
    tick_seconds = 0.1  # Each running thread's figure may be some ticks of the kernel behind.
    while time.process_time() < 2 * tick_seconds:
        pass
    before = time.process_time()
    read = cpu_seconds([os.getpid()])
    after = time.process_time()
    assert before - tick_seconds <= read <= after + tick_seconds


def test_a_listening_child_is_found_and_this_process_is_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert listening_processes(port) == []
        child = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
        )
        try:
            assert listening_processes(port) == [child.pid]
        finally:
            child.communicate(b"\n", timeout=30)
