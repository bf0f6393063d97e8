"""Memory of a server that clients without a token can occupy: the table of docs/security.md.

The p99 of good clients is printed but has no limit, since attacker, server and clients share the
cores.

ATTACK_SECONDS is the duration of each attack, by default 3. attacks.py reads ATTACK_CONNECTIONS.
"""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from tests.attack.attacks import ACKNOWLEDGEMENTS, ATTACKS
from tests.attack.proxy import proxy
from tests.attack.states import request
from tests.cli.running import ROOT, serving
from tests.serving.failures.busy import predictor
from tests.serving.versions import publish

MIB = 1 << 20
SECONDS = float(os.environ.get("ATTACK_SECONDS", "3"))
BETWEEN_CALLS_SECONDS = 0.01
MEMORY_MAX = 256 * MIB
KILL_BYTES = 1024 * MIB
"""At this size an attack is killed, to protect the machine."""
RECOVERY_SECONDS = 5


@dataclass
class Good:
    """A client with the token that calls repeatedly."""

    address: str
    token: str
    seconds: list[float] = field(default_factory=list)
    failures: int = 0

    def call(self, stub: grpc.UnaryUnaryMultiCallable) -> bool:
        started = time.monotonic()
        try:
            stub(request(5.0), timeout=2, metadata=[("authorization", f"Bearer {self.token}")])
        except grpc.RpcError as error:
            print(f"{time.monotonic() - started:.3f} s: {error.code()}: {error.details()}")
            self.failures += 1
            return False
        self.seconds.append(time.monotonic() - started)
        return True

    def call_until(self, ended: threading.Event) -> None:
        with grpc.insecure_channel(self.address) as channel:
            stub = predictor(channel)
            while not ended.wait(BETWEEN_CALLS_SECONDS):
                self.call(stub)

    def p99_ms(self) -> float:
        ordered = sorted(self.seconds)
        return 1000 * ordered[int(0.99 * (len(ordered) - 1))] if ordered else float("inf")


@contextmanager
def calling(address: str, token: str) -> Iterator[Good]:
    good, ended = Good(address, token), threading.Event()
    thread = threading.Thread(target=good.call_until, args=(ended,))
    thread.start()
    try:
        yield good
    finally:
        ended.set()
        thread.join()


def memory(process: int) -> int:
    """Resident bytes of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    return 0  # The process has ended.


def peak_during(attack: subprocess.Popen, processes: list[int], idle: int) -> int:
    """Peak of the processes' total memory above `idle`, until the attack ends."""
    peak = 0
    while attack.poll() is None:
        peak = max(peak, sum(map(memory, processes)) - idle)
        if peak >= KILL_BYTES:
            attack.kill()
        time.sleep(0.01)
    return peak


def recovery_seconds(address: str, token: str) -> float:
    """Time until a new client has ten answers in a row."""
    started, good, row = time.monotonic(), Good(address, token), 0
    with grpc.insecure_channel(address) as channel:
        stub = predictor(channel)
        while row < 10 and time.monotonic() - started < 4 * RECOVERY_SECONDS:
            row = row + 1 if good.call(stub) else 0
    return time.monotonic() - started if row == 10 else float("inf")


@contextmanager
def attacking(attack: str, acknowledgement: str, address: str) -> Iterator[subprocess.Popen]:
    host, port = address.rsplit(":", 1)
    command = [sys.executable, "-m", "tests.attack.attacks", attack, acknowledgement]
    with subprocess.Popen(
        [*command, host, port, str(SECONDS)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as attacker:
        yield attacker


@contextmanager
def unread() -> Iterator[str]:
    """Address of a socket that reads nothing. An attack on it costs only the attacker's work."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listening:
        host, port = listening.getsockname()
        yield f"{host}:{port}"


@contextmanager
def target(folder: Path, way: str, token: str) -> Iterator[tuple[str, list[int]]]:
    """Runs a server with a token. Yields the address for clients, and the process ids."""
    publish(folder / "repository", 1)
    (folder / "token").write_text(token)
    arguments = ["--threads", 1, "--token-file", folder / "token"]
    if way != "direct":
        arguments.append("--behind-proxy")
    with serving(folder / "repository", *arguments, stderr=subprocess.DEVNULL) as server:
        if way == "direct":
            yield server.address, [server.process.pid]
            return
        with proxy(server.address) as (process, address):
            yield address, [server.process.pid, process.pid]


@pytest.mark.attack
@pytest.mark.timeout(120)
@pytest.mark.parametrize("acknowledgement", ACKNOWLEDGEMENTS)
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize(
    "way", ["direct", pytest.param("behind the proxy", marks=pytest.mark.needs_proxy)]
)
def test_memory_that_clients_without_a_token_take(way, attack, acknowledgement, tmp_path):
    token = secrets.token_hex(16)
    with target(tmp_path, way, token) as (address, processes):
        recovery_seconds(address, token)  # Warms up.
        with calling(address, token) as quiet:
            time.sleep(SECONDS)
        with (
            unread() as elsewhere,
            calling(address, token) as control,
            attacking(attack, "early", elsewhere) as attacker,
        ):
            assert attacker.wait() == 0
        idle = sum(map(memory, processes))
        with (
            calling(address, token) as busy,
            attacking(attack, acknowledgement, address) as attacker,
        ):
            peak = peak_during(attacker, processes, idle)
            sent = attacker.stdout.read().strip()
        recovered = recovery_seconds(address, token)
    sent_mib = f"{int(sent) / MIB:.1f}" if sent else "-"
    print(
        f"\n| {way} | {attack} | {acknowledgement} | {sent_mib} | {peak / MIB:.0f} | "
        f"{quiet.p99_ms():.1f} | {control.p99_ms():.1f} | {busy.p99_ms():.1f} | {busy.failures} | "
        f"{recovered:.1f} |"
    )
    assert peak >= KILL_BYTES or (attacker.returncode == 0 and int(sent) > 0)
    assert busy.failures == 0
    assert peak <= MEMORY_MAX
    assert recovered <= RECOVERY_SECONDS
