"""The real tritonserver, in a process of its own, on free ports of 127.0.0.1. For benchmarks, and
for the tests of the backend.

It is the one on the PATH, else that of the wheel nvidia-pytriton (`scripts/install.sh triton`).
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
"""As `embershard serve` has it: threads of the dense program spin briefly for each other."""


class TritonEndedError(RuntimeError):
    """It ended before it was ready, or was not ready in time. The message is the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Triton:
    """A tritonserver that is ready."""

    process: subprocess.Popen[str]
    grpc: str
    """HOST:PORT, as are the others."""

    http: str
    metrics: str
    log: deque[str]
    """The last lines that it wrote, each with its end."""

    def resident_bytes(self) -> int:
        """Memory that it has now."""
        return memory_bytes(self.process.pid)


def wheel_folder() -> Path | None:
    """``tritonserver`` of the wheel: its program, and the backend for Python. None: not there."""
    spec = importlib.util.find_spec("pytriton")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "tritonserver"


def find_tritonserver() -> Path | None:
    """The program. None where there is none."""
    if found := shutil.which("tritonserver"):
        return Path(found)
    folder = wheel_folder()
    program = folder / "bin" / "tritonserver" if folder else None
    return program if program and program.is_file() else None


@contextmanager
def tritonserver(
    repository: Path,
    models: Sequence[str],
    *,
    backends: Path,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Triton]:
    """Serves models of a repository, others when told to; ends when the block does.

    Args:
        models: loaded at the start.
        backends: the folder of backends.
        options: further ones of the program.
        environment: added to this process's.
    """
    program = find_tritonserver()
    if program is None:
        raise FileNotFoundError("no tritonserver; `scripts/install.sh triton` installs one")
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
        if not _gets_ready(process, addresses):
            raise TritonEndedError("".join(log))
        yield Triton(process=process, log=log, **addresses)
    finally:
        end(process, END_SECONDS)
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: it takes numbers, and does not say which it chose. None
    that the system gives to others meanwhile (net.ipv4.ip_local_port_range)."""
    free = list[int]()
    with ExitStack() as stack:
        while len(free) < count:
            port = random.randrange(20_000, 32_768)
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                free.append(port)
    return free


def _read(process: subprocess.Popen[str], log: deque[str]) -> None:
    """Reads its output, so that it never blocks on a full pipe."""
    assert process.stdout is not None
    for line in process.stdout:
        log.append(line)


def _gets_ready(process: subprocess.Popen[str], addresses: Mapping[str, str]) -> bool:
    """Whether it is ready, and its metrics can be read, before it ends and in time."""
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
    except OSError:  # Not yet.
        return False
