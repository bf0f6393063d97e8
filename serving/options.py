"""What can be set on a server. Valid once built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from embershard.errors import ConfigError

__all__ = ["ServerOptions", "TableResidency"]

TableResidency = Literal["mmap", "resident"]

MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server listens, places tables and bounds its queue."""

    host: str = "127.0.0.1"
    """Address to listen on. ``0.0.0.0`` lets other machines in."""

    port: int = 50051
    """0: a free one, which the server states once it listens."""

    plan: str = ""
    """Which of the package's plans places the tables. Empty: the package's default."""

    tables: TableResidency = "mmap"
    """``mmap``: shared with the page cache, quick to start. ``resident``: copied into memory of
    the process, in huge pages where the system gives them; for large tables under steady load."""

    threads: int = 0
    """Threads inside the dense program. 0: as many as there are cores. Lower it where other work
    shares the machine."""

    default_timeout_ms: int = 1000
    """Deadline of a request whose client states none, in milliseconds, at least 1."""

    max_queued_examples: int = 32768
    """Examples waiting at once. Beyond this, requests are refused at once, not served late. A
    single request never holds more, and never more than a batch, 4096."""

    max_queued_ids: int = 1 << 23
    """Ids waiting at once, likewise."""

    max_message_bytes: int = 64 << 20
    """Largest message taken, in bytes, below 2**31."""

    drain_timeout_seconds: float = 30.0
    """How long a stopping server works on what it has accepted. 0: not at all."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port: expected 0..65535, got {self.port}")
        if self.tables not in get_args(TableResidency):
            raise ConfigError(f"tables: expected mmap or resident, got {self.tables!r}")
        if not 0 <= self.threads <= 1024:
            raise ConfigError(f"threads: expected 0..1024, got {self.threads}")
        for name in (
            "default_timeout_ms",
            "max_queued_examples",
            "max_queued_ids",
            "max_message_bytes",
        ):
            if not 0 < getattr(self, name) <= MOST:
                raise ConfigError(f"{name}: expected 1..{MOST}, got {getattr(self, name)}")
        if not 0 <= self.drain_timeout_seconds <= MOST:
            raise ConfigError(
                f"drain_timeout_seconds: expected 0..{MOST}, got {self.drain_timeout_seconds}"
            )
