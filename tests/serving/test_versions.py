"""Versions are loaded, labelled and let go; what fails leaves the old one serving."""

import json
import random
import signal
import subprocess
import sys
from contextlib import suppress

import grpc
import pytest

from embershard.client import Client
from embershard.errors import (
    EmbershardError,
    NotFoundError,
    OverloadedError,
    PackageError,
)
from embershard.package.labels import write_label
from embershard.serving import Server, ServerOptions
from tests.cases import cases
from tests.serving.models import seal
from tests.serving.test_health import SERVING, service
from tests.serving.versions import STEP

KILLS = 20
OPTIONS = ServerOptions(port=0, threads=1)


@pytest.fixture
def repository(published, tmp_path):
    """A copy that a test may change, made of links."""
    subprocess.run(["cp", "-rl", f"{published}/.", str(tmp_path)], check=True)
    return tmp_path


def ask(client, item=3, price=5.0, **which):
    return client.predict("ranker", dense={"price": [price]}, sparse={"item": [[item]]}, **which)


def version_of(answer):
    """Which version gave the score, by the score."""
    return round(float(answer["score"][0]) / STEP)


def spoil_digest(package):
    file = package / "programs" / "dense.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.unlink()
    file.write_bytes(data)


def spoil_samples(package):
    """Replaces the samples with another version's: the package is valid, but its scores differ."""
    (package / "samples.safetensors").unlink()
    other = (package.parent / "1" / "samples.safetensors").read_bytes()
    (package / "samples.safetensors").write_bytes(other)
    manifest = package / "manifest.json"
    document = json.loads(manifest.read_text())
    manifest.unlink()
    (package / "manifest.sha256").unlink()
    seal(package, document)


@cases(
    ("spoil", "message"),
    {
        "bad-hash": (spoil_digest, r"programs/dense\.pt: sha256: expected"),
        "wrong-samples": (spoil_samples, r"sample 0: output 'score' at example 0"),
    },
)
def test_a_load_that_fails_leaves_the_old_version_serving(repository, spoil, message):
    hidden = repository / "ranker" / "2"
    away = repository / "elsewhere"
    hidden.rename(away)
    with (
        Server(repository, options=OPTIONS) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        subprocess.run(["cp", "-r", str(away), str(hidden)], check=True)
        spoil(hidden)
        with pytest.raises(PackageError, match=message) as refused:
            server.refresh()
        assert str(refused.value).endswith("model 'ranker' version 1 serves on")
        assert version_of(ask(client)) == 1
        failed = {version["version"]: version for version in server.index()}[2]
        assert failed["state"] == "failed"
        assert failed["reason"] in str(refused.value)
        subprocess.run(["rm", "-r", str(hidden)], check=True)
        away.rename(hidden)
        server.refresh()
        assert version_of(ask(client)) == 2


def test_a_version_that_does_not_fit_is_refused_unless_replacing(repository):
    """Both versions share a table, which takes memory once. The rest of the second does not fit."""
    hidden = repository / "ranker" / "2"
    hidden.rename(repository / "elsewhere")
    first = sum(file.stat().st_size for file in (repository / "ranker" / "1").rglob("*.*"))
    options = ServerOptions(port=0, threads=1, tables="resident", memory_budget=first)
    with Server(repository, options=options) as server:
        (repository / "elsewhere").rename(hidden)
        with pytest.raises(OverloadedError, match="the memory budget"):
            server.load("ranker")
        cost = server.load("ranker", replace=True)
        assert 0 < cost["unserved_seconds"] <= cost["seconds"]
        assert [package.version for package in server.packages] == [2]


def test_versions_and_labels_are_asked_for_side_by_side(repository):
    write_label(repository, "ranker", "stable", 1)
    write_label(repository, "ranker", "canary", 2)
    with (
        Server(repository, options=OPTIONS) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert version_of(ask(client)) == 1
        assert version_of(ask(client, version=2)) == 2
        assert version_of(ask(client, label="canary")) == 2
        with pytest.raises(NotFoundError, match="label 'shadow' is not defined here, expected"):
            ask(client, label="shadow")
        counted = server.metrics().by("embershard_examples", "version")
        assert counted == {"1": 1, "2": 2}


@pytest.mark.parametrize(("rule", "expected"), [("", 2), ("latest", 2), ("1", 1)])
def test_a_rule_says_which_version_answers(repository, rule, expected):
    with (
        Server(repository, version=rule, options=OPTIONS) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert version_of(ask(client)) == expected


def test_several_models_are_served_each_healthy_under_its_name(repository):
    subprocess.run(
        ["cp", "-rl", str(repository / "ranker"), str(repository / "finder")], check=True
    )
    for version in ("1", "2"):
        manifest = repository / "finder" / version / "manifest.json"
        document = {**json.loads(manifest.read_text()), "model": "finder"}
        manifest.unlink()
        (repository / "finder" / version / "manifest.sha256").unlink()
        seal(repository / "finder" / version, document)
    with (
        Server(repository, options=OPTIONS) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        names = [(package.model, package.version) for package in server.packages]
        assert names == [("finder", 2), ("ranker", 2)]
        assert version_of(ask(client)) == 2
        with pytest.raises(NotFoundError, match="no model is named, expected one of 'finder'"):
            client.predict(dense={"price": [1.0]})
        with grpc.insecure_channel(server.address) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert check(service("finder"), timeout=60) == SERVING
            server.unload("finder")
            assert check(service("finder"), timeout=60) != SERVING
            assert check(service("ranker"), timeout=60) == SERVING
        assert version_of(ask(client)) == 2


# Does not import torch, so that it starts at once.
PUBLISHER = """
import hashlib, json, shutil, sys
from pathlib import Path

first = Path(sys.argv[1]) / "ranker" / "1"
print("ready", flush=True)
for version in range(int(sys.argv[2]), 10_000):
    out = first.parent / str(version)
    shutil.copytree(first, out)
    manifest = json.loads((out / "manifest.json").read_text())
    text = json.dumps({**manifest, "version": version})
    (out / "manifest.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (out / "manifest.sha256").write_text(f"{digest}  manifest.json\\n")
    print(version, flush=True)
"""


def refused_to_refresh(server):
    """True if the refresh fails with the message that the old version serves on."""
    try:
        server.refresh()
    except EmbershardError as error:
        return "serves on" in str(error)
    return False


def test_a_killed_publisher_leaves_a_repository_that_serves(repository):
    """This publisher copies in place, which none should do. A half-copied version does not load."""
    chance = random.Random(11)
    refused = 0
    with (
        Server(repository, options=OPTIONS) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        for turn in range(KILLS):
            child = subprocess.Popen(
                [sys.executable, "-c", PUBLISHER, str(repository), str(100 * (turn + 1))],
                stdout=subprocess.PIPE,
                text=True,
            )
            with child:
                assert child.stdout.readline() == "ready\n"
                with suppress(subprocess.TimeoutExpired):  # If not, it was quick, or we were slow.
                    child.wait(timeout=0.05 * chance.random())
                child.send_signal(signal.SIGKILL)
            refused += refused_to_refresh(server)
            assert version_of(ask(client)) in (1, 2)
    assert refused < KILLS  # Otherwise no copy was ever complete.
    # A half-copied version does not keep a server from starting if a label names a whole one.
    write_label(repository, "ranker", "stable", 1)
    with (
        Server(repository, options=OPTIONS) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert version_of(ask(client)) == 1
