"""HAProxy accepts the configuration of the deployment, and protects the server with it."""

import os
import subprocess

import pytest

from embershard.client import Client, Tls
from embershard.errors import UnauthenticatedError, UnavailableError
from embershard.serving import Server, ServerOptions
from tests.attack.proxy import proxy
from tests.docker.files import DOCKER
from tests.docker.test_kubernetes import PROXY
from tests.repository.sources import ROOT
from tests.serving.certificates import Authority


def check_configuration(listen):
    """True if HAProxy accepts the configuration with that LISTEN, and its messages."""
    done = subprocess.run(
        ["haproxy", "-c", "-f", str(DOCKER / "haproxy.cfg")],
        env=os.environ | {"LISTEN": listen, "SERVER": "127.0.0.1:50052"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode == 0, done.stderr


@pytest.mark.needs_proxy
def test_each_word_of_listen_is_an_argument(tmp_path):
    assert check_configuration(":50051")[0]
    missing = tmp_path / "server.pem"
    is_valid, messages = check_configuration(f":50051 ssl crt {missing} alpn h2")
    # If LISTEN were a single argument, the proxy would listen without TLS.
    assert not is_valid
    assert str(missing) in messages


@pytest.mark.needs_proxy
def test_the_sidecar_takes_the_secrets_tls_files_and_a_token(tmp_path):
    """A Kubernetes secret has the files tls.crt and tls.key. LISTEN names only the first."""
    authority = Authority("of the test")
    signed = authority.sign("server")
    (tmp_path / "tls.crt").write_bytes(signed.certificate)
    (tmp_path / "tls.key").write_bytes(signed.key)
    (tmp_path / "token").write_text("of-a-test-of-the-sidecar-0123456789")
    ca = authority.write(tmp_path, "ca")
    (listen,) = [item["value"] for item in PROXY["env"] if item["name"] == "LISTEN"]
    words = listen.partition(" ")[2].replace("/secrets", str(tmp_path))
    options = ServerOptions(port=0, threads=1, token_file=str(tmp_path / "token"))
    with (
        Server(ROOT / "tests" / "golden" / "format_0", options=options) as server,
        proxy(server.address, words) as (_, address),
    ):
        token = (tmp_path / "token").read_text()
        with Client(address, tls=Tls(ca=ca), token=token, timeout_seconds=60) as client:
            assert client.get_model().name
        with (
            Client(address, tls=Tls(ca=ca), token="another", timeout_seconds=60) as client,
            pytest.raises(UnauthenticatedError),
        ):
            client.get_model()
        with (
            Client(address, timeout_seconds=60, max_attempts=1) as client,
            pytest.raises(UnavailableError),
        ):
            client.get_model()
