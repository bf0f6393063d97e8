"""The proxy of the deployment, as HAProxy reads its configuration."""

import os
import subprocess

import pytest

from tests.docker.files import DOCKER


def checked(listen):
    """Of the configuration with that LISTEN: whether HAProxy takes it, and its words."""
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
    assert checked(":50051")[0]
    missing = tmp_path / "server.pem"
    is_valid, words = checked(f":50051 ssl crt {missing} alpn h2")
    assert not is_valid  # As one word it would listen without TLS.
    assert str(missing) in words
