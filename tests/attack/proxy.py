"""Runs HAProxy with the configuration of the deployment in front of a server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["CONFIGURATION", "is_installed", "proxy"]

CONFIGURATION = Path(__file__).parents[2] / "docker" / "haproxy.cfg"
END_SECONDS = 10


def is_installed() -> bool:
    return shutil.which("haproxy") is not None


@contextmanager
def proxy(server: str, listen: str = "") -> Iterator[tuple[subprocess.Popen, str]]:
    """Runs HAProxy in front of a server until the block ends. Yields its process and its address.
    ``listen``: arguments that follow the address in LISTEN."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        host, port = listening.getsockname()
        descriptor = listening.fileno()
        process = subprocess.Popen(
            ["haproxy", "-db", "-f", str(CONFIGURATION)],
            env=os.environ | {"LISTEN": f"fd@{descriptor} {listen}", "SERVER": server},
            pass_fds=[descriptor],
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process, f"{host}:{port}"
        finally:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            finally:
                process.kill()
