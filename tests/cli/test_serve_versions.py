"""`embershard serve` with `load`, `unload`, `label` and SIGHUP."""

import json
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from embershard.cli import main
from embershard.client import Client
from embershard.errors import NotFoundError, UnavailableError
from embershard.serving.control import order
from tests.cli.running import run, serving
from tests.serving.failures.busy import until
from tests.serving.versions import version_of


@pytest.fixture
def repository(published, tmp_path):
    subprocess.run(["cp", "-rl", f"{published}/.", str(tmp_path / "repository")], check=True)
    return tmp_path / "repository"


def label(capsys, *arguments):
    """Exit code, standard output and standard error of `embershard label`."""
    code = main(["label", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_a_label_and_sighup_change_what_answers(repository, capsys):
    assert label(capsys, repository, "ranker", "stable", 1)[0] == 0
    with serving(repository, "--threads", 1) as server:
        assert server.line.startswith("serving ranker 1 on ")
        with Client(server.address, timeout_seconds=60) as client:
            assert version_of(client) == 1
            label(capsys, repository, "ranker", "stable", 2)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: version_of(client) == 2)
        code, _, err = server.stop(signal.SIGTERM)
    assert code == 0
    assert "loaded model=ranker version=2" in err
    assert "refreshed seconds=" in err


def test_a_canary_on_the_highest_version_leaves_the_default(repository, capsys):
    """Version 2 is the highest, and would answer everything."""
    code, labelled, _ = label(capsys, repository, "ranker", "canary", 2)
    assert code == 0
    assert labelled.splitlines() == [
        "ranker 2        canary",
        "ranker 1        stable",
        "also labelled version 1 stable: no version was, and it is the highest that is neither "
        "canary nor shadow (with --control SOCKET, the server's default version is taken)",
    ]
    with serving(repository, "--threads", 1) as server:
        with Client(server.address, timeout_seconds=60) as client:
            assert version_of(client) == 1
            assert version_of(client, label="canary") == 2
        server.stop(signal.SIGTERM)


def test_label_with_control_labels_the_served_version_stable(repository, tmp_path, capsys):
    """Version 2 came later, and the server has not looked at the repository since."""
    socket, later = tmp_path / "control", tmp_path / "2"
    (repository / "ranker" / "2").rename(later)
    with serving(repository, "--threads", 1, "--control", socket) as server:
        later.rename(repository / "ranker" / "2")
        shutil.copytree(repository / "ranker" / "2", repository / "ranker" / "3")
        _, labelled, _ = label(capsys, repository, "ranker", "canary", 3, "--control", socket)
        code, _, _ = label(capsys, repository, "ranker", "shadow", 1, "--control", socket)
        server.stop(signal.SIGTERM)
    assert labelled.splitlines() == [
        "ranker 3        canary",
        "ranker 1        stable",
        f"also labelled version 1 stable: no version was, and the server at {socket} serves it",
    ]
    assert code == 0  # A version is stable: the server has no say.


def test_label_with_control_refuses_another_repositorys_server(repository, tmp_path, capsys):
    socket, other = tmp_path / "control", tmp_path / "other"
    shutil.copytree(repository, other)
    shutil.rmtree(other / "ranker" / "2")
    (other / "small" / "1").mkdir(parents=True)
    (other / "small" / "1" / "manifest.json").touch()
    with serving(repository, "--threads", 1, "--control", socket) as server:
        for arguments, words in (
            ((other, "ranker", "canary", 1), f"NotFoundError: {other}/ranker: expected the "
             "server's default version 2, got no such version"),
            ((other, "small", "canary", 1), f"NotFoundError: {socket}: expected a server of model "
             "'small', got models: ranker"),
            ((repository, "ranker", "canary", 2), "RequestError: canary: expected a version other "
             "than the server's default version, got 2"),
        ):  # fmt: skip
            code, _, errors = label(capsys, *arguments, "--control", socket)
            assert (code, words in errors) == (1, True), errors
        server.stop(signal.SIGTERM)
    _, _, errors = label(capsys, repository, "ranker", "canary", 2, "--control", socket)
    assert f"UnavailableError: {socket}: no server listens on this control socket" in errors
    assert not (repository / "ranker" / "labels.json").exists()


def test_a_traffic_split_is_served(repository, capsys):
    label(capsys, repository, "ranker", "canary", 2)
    with serving(repository, "--threads", 1, "--traffic", "canary=100") as server:
        with Client(server.address, timeout_seconds=60) as client:
            assert version_of(client) == 2
            assert version_of(client, label="stable") == 1
        server.stop(signal.SIGTERM)


def test_a_field_without_anything_to_say_is_left_out(repository, tmp_path):
    socket = tmp_path / "control"
    with serving(repository, "--threads", 1, "--control", socket, "--log-json") as server:
        order(socket, {"order": "load", "model": "ranker", "version": 1})
        _, _, err = server.stop(signal.SIGTERM)
    lines = [json.loads(line) for line in err.splitlines()]
    (loaded,) = [line for line in lines if line["event"] == "loaded"]
    assert loaded.keys() == {"time", "event", "model", "version", "seconds"}


def test_load_and_unload_over_the_socket(repository, tmp_path):
    socket = tmp_path / "control"
    with serving(repository, "--threads", 1, "--control", socket) as server:
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        with Client(server.address, timeout_seconds=60) as client:
            loaded = run("load", socket, "ranker", "--version", 1)
            assert loaded.returncode == 0, loaded.stderr
            assert "ranker 1" in loaded.stdout
            assert "ready" in loaded.stdout
            assert version_of(client, version=1) == 1
            refused = run("unload", socket, "ranker", "--version", 2)
            assert refused.returncode == 1
            assert "RequestError: model 'ranker' version 2 is the default" in refused.stderr
            assert run("unload", socket, "ranker", "--version", 1).returncode == 0
            with pytest.raises(NotFoundError):
                version_of(client, version=1)
        server.stop(signal.SIGTERM)
    assert not socket.exists()
    assert "UnavailableError" in run("load", socket).stderr


def is_loaded(socket, version):
    states = {
        entry["version"]: entry["state"] for entry in order(socket, {"order": "index"})["index"]
    }
    return states[version] == "ready"


def test_a_killed_loader_leaves_the_server_serving(repository, tmp_path):
    """The process that orders a load is killed at random times. Every order has a version to
    load."""
    socket = tmp_path / "control"
    chance = random.Random(3)
    script = "import sys; from pathlib import Path; from embershard.serving.control import order\n"
    script += "print(flush=True)\n"  # Its imports take longer than an order.
    script += 'order(Path(sys.argv[1]), {"order": "load", "model": "ranker", "version": 1})'
    killed = 0
    with (
        serving(repository, "--threads", 1, "--control", socket) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        for _ in range(20):
            loader = subprocess.Popen(
                [sys.executable, "-c", script, str(socket)], stdout=subprocess.PIPE
            )
            loader.stdout.read(1)
            try:
                loader.wait(timeout=0.05 * chance.random())
            except subprocess.TimeoutExpired:
                loader.kill()
                killed += 1
            loader.communicate()
            assert version_of(client) == 2
            if is_loaded(socket, 1):
                order(socket, {"order": "unload", "model": "ranker", "version": 1})
        order(socket, {"order": "load", "model": "ranker", "version": 1})
        assert version_of(client, version=1) == 1
    assert killed > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_killed_while_loading_leaves_a_good_repository(repository, tmp_path):
    """The server is killed within half a second, or within the time that the last load took. The
    order is on its way by then."""
    chance = random.Random(4)
    load = {"order": "load", "model": "ranker", "version": 1}
    seconds, broken_off = 0.0, 0
    for turn in range(6):
        socket = tmp_path / f"control{turn}"
        with (
            serving(repository, "--threads", 1, "--control", socket) as server,
            ThreadPoolExecutor(1) as beside,
        ):
            started = time.monotonic()
            ordered = beside.submit(order, socket, load)
            if turn == 0:
                ordered.result(timeout=60)
                seconds = min(time.monotonic() - started, 0.5)
                continue
            with pytest.raises(subprocess.TimeoutExpired):
                server.process.wait(timeout=seconds * chance.random())
            server.process.kill()
            broken_off += isinstance(ordered.exception(timeout=60), UnavailableError)
    assert broken_off > 0
    with (
        serving(repository, "--threads", 1, "--control", tmp_path / "control") as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert version_of(client) == 2
        order(tmp_path / "control", {"order": "load", "model": "ranker", "version": 1})
        assert version_of(client, version=1) == 1
