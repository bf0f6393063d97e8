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

from embershard.client import Client
from embershard.errors import EmbershardError, NotFoundError, UnavailableError
from embershard.serving.control import order
from tests.cases import cases
from tests.cli.running import run, serving
from tests.serving.failures.busy import until
from tests.serving.models import seal
from tests.serving.versions import version_of


@pytest.fixture
def repository(published, tmp_path):
    subprocess.run(["cp", "-rl", f"{published}/.", str(tmp_path / "repository")], check=True)
    return tmp_path / "repository"


def test_a_label_and_sighup_change_what_answers(repository):
    assert run("label", repository, "ranker", "stable", 1).returncode == 0
    with serving(repository, "--threads", 1) as server:
        assert server.line.startswith("serving ranker 1 on ")
        with Client(server.address, timeout_seconds=60) as client:
            assert version_of(client) == 1
            run("label", repository, "ranker", "stable", 2)
            server.process.send_signal(signal.SIGHUP)
            until(lambda: version_of(client) == 2)
        code, _, err = server.stop(signal.SIGTERM)
    assert code == 0
    assert "loaded model=ranker version=2" in err
    assert "refreshed seconds=" in err


def test_a_canary_on_the_highest_version_leaves_the_default_version_serving(repository):
    """Version 2 is the highest, and would answer everything."""
    labelled = run("label", repository, "ranker", "canary", 2)
    assert labelled.returncode == 0
    assert labelled.stdout.splitlines() == [
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


def test_label_with_control_labels_the_served_version_stable(repository, tmp_path):
    """Version 2 came later, and the server has not looked at the repository since."""
    socket, later = tmp_path / "control", tmp_path / "2"
    (repository / "ranker" / "2").rename(later)
    with serving(repository, "--threads", 1, "--control", socket) as server:
        later.rename(repository / "ranker" / "2")
        shutil.copytree(repository / "ranker" / "2", repository / "ranker" / "3")
        labelled = run("label", repository, "ranker", "canary", 3, "--control", socket)
        refused = run("label", repository, "ranker", "shadow", 1, "--control", socket)
        server.stop(signal.SIGTERM)
    assert labelled.stdout.splitlines() == [
        "ranker 3        canary",
        "ranker 1        stable",
        f"also labelled version 1 stable: no version was, and the server at {socket} serves it",
    ]
    assert refused.returncode == 0  # A version is stable: the server has no say.


def test_label_with_control_refuses_a_server_of_another_repository(repository, tmp_path):
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
            ended = run("label", *arguments, "--control", socket)
            assert (ended.returncode, words in ended.stderr) == (1, True), ended.stderr
        server.stop(signal.SIGTERM)
    nobody = run("label", repository, "ranker", "canary", 2, "--control", socket)
    assert f"UnavailableError: {socket}: no server listens on this control socket" in nobody.stderr
    assert not (repository / "ranker" / "labels.json").exists()


def test_a_traffic_split_of_another_form_is_refused_before_anything_is_loaded(repository):
    refused = run("serve", repository, "--port", 0, "--traffic", "beta=5")
    assert refused.returncode == 1
    assert "ConfigError: traffic: label: expected canary or stable, got 'beta'" in refused.stderr


def test_a_traffic_split_is_served(repository):
    run("label", repository, "ranker", "canary", 2)
    with serving(repository, "--threads", 1, "--traffic", "canary=100") as server:
        with Client(server.address, timeout_seconds=60) as client:
            assert version_of(client) == 2
            assert version_of(client, label="stable") == 1
        server.stop(signal.SIGTERM)


def events(err, *names):
    """Of these names, as the log has them, without their times."""
    lines = [line.split(maxsplit=1)[1] for line in err.splitlines()]
    return [line for line in lines if line.split()[0] in names]


def test_an_order_that_moves_the_default_is_in_the_log(repository, tmp_path):
    """Both versions are loaded: nothing but the labels changes."""
    socket = tmp_path / "control"
    run("label", repository, "ranker", "stable", 1)
    run("label", repository, "ranker", "canary", 2)
    with serving(repository, "--threads", 1, "--control", socket) as server:
        run("label", repository, "ranker", "stable", 2)
        order(socket, {"order": "refresh"})
        order(socket, {"order": "refresh"})  # Nothing has changed.
        order(socket, {"order": "unload", "model": "ranker"})
        _, _, err = server.stop(signal.SIGTERM)
    assert events(err, "loaded", "serving", "unloaded") == [
        "serving model=ranker version=2",
        "unloaded model=ranker version=1",
        "unloaded model=ranker version=2",
    ]


@cases(
    ("labels", "message"),
    {
        "no-json": ('{"stable": 1', r"^model 'ranker': labels\.json: "),
        "no-number": ('{"stable": "x"}', r"^model 'ranker': labels\.json: "),
        "missing-version": ('{"stable": 9}', "version 9"),
    },
)
@pytest.mark.parametrize("sent", [{"order": "refresh"}, {"order": "load", "model": "ranker"}])
def test_labels_that_cannot_be_followed_are_in_the_log(repository, tmp_path, labels, message, sent):
    socket = tmp_path / "control"
    with serving(repository, "--threads", 1, "--control", socket, "--log-json") as server:
        (repository / "ranker" / "labels.json").write_text(labels)
        with pytest.raises(EmbershardError, match=message) as refused:
            order(socket, sent)
        _, _, err = server.stop(signal.SIGTERM)
    lines = [json.loads(line) for line in err.splitlines()]
    (failed,) = [line for line in lines if line["event"] == "load_failed"]
    del failed["time"]
    assert failed == {"event": "load_failed", "model": "ranker", "message": str(refused.value)}


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


def test_a_load_that_fails_says_so_in_the_command_the_log_and_the_index(repository, tmp_path):
    socket = tmp_path / "control"
    program = repository / "ranker" / "2" / "programs" / "dense.pt"
    data = program.read_bytes()
    program.unlink()
    program.write_bytes(bytes(len(data)))
    run("label", repository, "ranker", "stable", 1)
    with serving(repository, "--threads", 1, "--control", socket) as server:
        refused = run("load", socket, "ranker", "--version", 2)
        assert refused.returncode == 1
        assert "PackageError: model 'ranker' version 2: programs/dense.pt: sha256" in refused.stderr
        assert "model 'ranker' version 1 serves on" in refused.stderr
        index = {
            version["version"]: version for version in order(socket, {"order": "index"})["index"]
        }
        assert index[2]["state"] == "failed"
        assert "sha256" in index[2]["reason"]
        _, _, err = server.stop(signal.SIGTERM)
    assert "load_failed model=ranker version=2" in err


def index_line(command, version):
    (line,) = [line for line in command.stdout.splitlines() if line.startswith(f"ranker {version}")]
    return " ".join(line.split())


def test_another_package_in_a_loaded_versions_folder_is_reported_and_taken_by_replace(
    repository, tmp_path
):
    socket = tmp_path / "control"
    folder = repository / "ranker" / "2"
    with serving(repository, "--threads", 1, "--control", socket) as server:
        document = json.loads((folder / "manifest.json").read_text())
        document["limits"]["max_examples"] += 1
        other = shutil.copytree(folder, tmp_path / "2")
        seal(other, document)
        folder.rename(tmp_path / "before")
        other.rename(folder)
        for _ in range(2):
            loaded = run("load", socket, "ranker", "--version", 2)
            assert loaded.returncode == 0, loaded.stderr
            differs = "differs on disk from what is served; load --replace takes it"
            assert index_line(loaded, 2) == f"ranker 2 ready: {differs} default"
        replaced = run("load", socket, "ranker", "--replace")
        assert index_line(replaced, 2) == "ranker 2 ready default"
        folder.rename(tmp_path / "deleted")
        with pytest.raises(NotFoundError, match="version 2 is not in the repository"):
            order(socket, {"order": "load", "model": "ranker", "version": 2})
        gone = {
            version["version"]: version for version in order(socket, {"order": "index"})["index"]
        }
        assert gone[2]["reason"] == "its folder is gone; the loaded version serves on"
        _, _, err = server.stop(signal.SIGTERM)
    names = ("differs_on_disk", "unloaded", "loaded", "replaced", "load_failed")
    assert [line.split()[0] for line in events(err, *names)] == [
        *("differs_on_disk", "unloaded", "loaded", "replaced"),
        *("load_failed", "differs_on_disk"),
    ]


def is_loaded(socket, version):
    states = {
        version["version"]: version["state"]
        for version in order(socket, {"order": "index"})["index"]
    }
    return states[version] == "ready"


def test_a_killed_loader_leaves_the_server_serving(repository, tmp_path):
    """Who gives the order is killed; every order is one that has something to load."""
    socket = tmp_path / "control"
    chance = random.Random(3)
    script = "import sys; from pathlib import Path; from embershard.serving.control import order\n"
    script += "print(flush=True)\n"  # What it imports takes longer than an order.
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
def test_a_server_that_is_killed_while_it_loads_leaves_a_repository_that_serves(
    repository, tmp_path
):
    """It is killed within the time that loading took before, or half a second of it; the order is
    on its way by then."""
    chance = random.Random(4)
    load = {"order": "load", "model": "ranker", "version": 1}
    seconds, broken_off = 0.0, 0
    for turn in range(21):
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


def test_nobody_at_the_socket(tmp_path):
    with pytest.raises(UnavailableError, match="no server listens on this control socket"):
        order(tmp_path / "control", {"order": "index"})
