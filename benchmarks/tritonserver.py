"""Runs tritonserver on free ports of 127.0.0.1, for benchmarks and for tests of the backend.

The program is taken from PATH, else from the wheel nvidia-pytriton (`scripts/install.sh triton`).
"""

import importlib.util
import os
import random
import shutil
import socket
import subprocess
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.child import memory_bytes
from benchmarks.processes import end

START_SECONDS: Final = 120
END_SECONDS: Final = 60
LOG_LINES: Final = 2000
LOOK_SECONDS: Final = 0.02

ENVIRONMENT: Final = {"GOMP_SPINCOUNT": "1000"}
"""Limits how long threads of the dense program spin, as `embershard serve` does."""


class TritonEndedError(RuntimeError):
    """It ended before it was ready, or was not ready in time. The message has its last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triton:
    process: subprocess.Popen[str]
    grpc: str
    """HOST:PORT, like the other addresses."""

    http: str
    metrics: str
    log: deque[str]
    """The last lines of its output, with line ends."""

    def resident_bytes(self) -> int:
        return memory_bytes(self.process.pid)


def wheel_folder() -> Path | None:
    """Folder of the wheel with the program and the Python backend. None if it is not installed."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "tritonserver"


def find_tritonserver() -> Path | None:
    if program := shutil.which("tritonserver"):
        return Path(program)
    folder = wheel_folder()
    file = folder / "bin" / "tritonserver" if folder else None
    return file if file and file.is_file() else None


@contextmanager
def tritonserver(
    repository: Path,
    models: Sequence[str],
    *,
    backends: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Triton]:
    """Serve until the block ends. ``models`` are loaded at the start, others later. ``backends`` is
    the folder of backends."""
    program = find_tritonserver()
    if program is None:
        raise FileNotFoundError(
            "expected tritonserver, found none; run `scripts/install.sh triton`"
        )
    ports = dict(zip(("grpc", "http", "metrics"), _free_ports(3), strict=True))
    command = [
        str(program),
        f"--model-repository={repository}",
        f"--backend-directory={backends}",
        "--model-control-mode=explicit",
        f"--exit-timeout-secs={END_SECONDS // 2}",
        *(f"--load-model={model}" for model in models),
        *(f"--{name}-address=127.0.0.1" for name in ports),
        *(f"--{name}-port={port}" for name, port in ports.items()),
        *options,
    ]
    process = subprocess.Popen(
        command,
        env={**os.environ, **ENVIRONMENT, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    log: deque[str] = deque(maxlen=LOG_LINES)
    reader = threading.Thread(target=_read, args=(process, log))
    reader.start()
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    try:
        if not _wait_until_ready(process, addresses):
            raise TritonEndedError("".join(log))
        yield Triton(process=process, log=log, **addresses)
    finally:
        end(process, END_SECONDS)
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, since tritonserver does not report a port that it chose. They are
    outside the range that the system assigns (net.ipv4.ip_local_port_range)."""
    free = list[int]()
    with ExitStack() as stack:
        while len(free) < count:
            port = random.randrange(20_000, 32_768)
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                free.append(port)
    return free


def _read(process: subprocess.Popen[str], log: deque[str]) -> None:
    """Read the output, so that the process never blocks on a full pipe."""
    assert process.stdout is not None
    for line in process.stdout:
        log.append(line)


def _wait_until_ready(process: subprocess.Popen[str], addresses: Mapping[str, str]) -> bool:
    """Wait until it is ready and its metrics can be read. False if it ended, or after a timeout."""
    pause = threading.Event()
    urls = [f"http://{addresses['http']}/v2/health/ready", f"http://{addresses['metrics']}/metrics"]
    for _ in range(int(START_SECONDS / LOOK_SECONDS)):
        if process.poll() is not None:
            return False
        if all(map(_answers, urls)):
            return True
        pause.wait(LOOK_SECONDS)
    return False


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=START_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
