"""A server that asks for signatures: every version that it loads, at the start or later, has one by
a key that it trusts."""

import subprocess

import pytest

from embershard.client import Client
from embershard.errors import ConfigError, PackageError
from embershard.package import sign_package
from embershard.serving import Server, ServerOptions
from tests.package.keys import write_keys
from tests.serving.serve import serve
from tests.serving.test_versions import ask, version_of


@pytest.fixture
def repository(published, tmp_path):
    folder = tmp_path / "repository"
    subprocess.run(["cp", "-r", str(published), str(folder)], check=True)
    return folder


@pytest.fixture
def keys(tmp_path):
    return write_keys(tmp_path)


def options(keys):
    return ServerOptions(port=0, threads=1, trusted_key=str(keys.public))


def package(repository, version):
    return repository / "ranker" / str(version)


NOT_SIGNED = r"^model 'ranker' version 2: 2\.sig: file: expected a signature by a key in .*"
OTHERWISE = r"^model 'ranker' version 2: 2\.sig: signature: expected one of manifest\.sha256 by .*"


def test_a_server_does_not_start_without_the_signature(repository, keys, tmp_path):
    with pytest.raises(PackageError, match=NOT_SIGNED):
        Server(repository, options=options(keys))
    sign_package(package(repository, 2), write_keys(tmp_path, "stranger").private)
    with pytest.raises(PackageError, match=OTHERWISE):
        Server(repository, options=options(keys))
    # One of another version, by the right key.
    signature = sign_package(package(repository, 1), keys.private)
    (repository / "ranker" / "2.sig").write_bytes(signature.read_bytes())
    with pytest.raises(PackageError, match=OTHERWISE):
        Server(repository, options=options(keys))


def test_later_loads_are_held_to_it_while_the_old_version_serves(repository, keys, tmp_path):
    hidden = repository / "elsewhere"
    package(repository, 2).rename(hidden)
    sign_package(package(repository, 1), keys.private)
    with (
        Server(repository, options=options(keys)) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        hidden.rename(package(repository, 2))

        def refused(order, words):
            with pytest.raises(PackageError, match=words) as caught:
                order()
            assert str(caught.value).endswith("model 'ranker' version 1 serves on")
            assert version_of(ask(client)) == 1

        for order in (
            server.refresh,
            lambda: server.load("ranker"),
            lambda: server.load("ranker", 2),
        ):
            refused(order, NOT_SIGNED)
        sign_package(package(repository, 2), write_keys(tmp_path, "stranger").private)
        refused(server.refresh, OTHERWISE)
        failed = {version["version"]: version for version in server.index()}[2]
        assert failed["state"] == "failed"
        assert failed["reason"].startswith("2.sig: signature: ")
        sign_package(package(repository, 2), keys.private)
        server.refresh()
        assert version_of(ask(client)) == 2


def test_a_signed_manifest_does_not_hide_a_damaged_file(repository, keys):
    sign_package(package(repository, 2), keys.private)
    program = package(repository, 2) / "programs" / "dense.pt"
    data = bytearray(program.read_bytes())
    data[len(data) // 2] ^= 1
    program.write_bytes(data)
    with pytest.raises(PackageError, match=r"programs/dense\.pt: sha256: expected"):
        Server(repository, options=options(keys))


@pytest.mark.parametrize("text", [None, "", "no key"])
def test_keys_that_cannot_be_used_are_refused_at_the_start(repository, tmp_path, text):
    trusted = tmp_path / "trusted.pem"
    if text is not None:
        trusted.write_text(text)
    with pytest.raises(ConfigError, match=r"trusted\.pem: (No such file|expected public keys)"):
        Server(repository, options=ServerOptions(port=0, trusted_key=str(trusted)))


def test_without_a_key_signatures_are_nothing(repository):
    (repository / "ranker" / "2.sig").write_bytes(b"nonsense")
    with (
        serve(repository) as server,
        Client(server.address, timeout_seconds=60) as client,
    ):
        assert version_of(ask(client)) == 2
