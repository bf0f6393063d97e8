"""What can be set on a server. Valid once built."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from embershard.errors import ConfigError

__all__ = ["ServerOptions", "TableResidency"]

TableResidency = Literal["mmap", "resident"]

MOST = (1 << 31) - 1
LEAST = {
    "default_timeout_ms": 1,
    "max_request_examples": 0,
    "max_request_ids": 0,
    "max_batch_examples": 0,
    "max_batch_ids": 0,
    "merge_examples": 0,
    "max_queued_examples": 0,
    "max_queued_ids": 0,
    "max_queued_bytes": 1,
    "max_inline_us": 0,
    "max_message_bytes": 1,
    "max_connections": 0,
    "max_connection_calls": 1,
    "stream_in_flight": 1,
    "record_requests": 1,
}
SECONDS_OF_CONNECTIONS = (
    "connection_idle_seconds",
    "connection_age_seconds",
    "keepalive_seconds",
    "min_ping_seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server listens, places tables and bounds its queue."""

    host: str = "127.0.0.1"
    """Address to listen on. ``0.0.0.0`` lets other machines in."""

    port: int = 50051
    """0: a free one, which the server states once it listens."""

    plan: str = ""
    """Which of the package's plans places the tables. Empty: the package's default."""

    dense_program: str = ""
    """Target of the dense program: ``cpu`` is TorchScript. Empty: what ``embershard compile`` made,
    where the package has it; refused where none of that is for this machine."""

    tables: TableResidency = "mmap"
    """``mmap``: shared with the page cache, quick to start. ``resident``: copied into memory of
    the process, in huge pages where the system gives them; for large tables under steady load."""

    threads: int = 0
    """Threads of the lookups and, after them, inside the dense program. 0: as many as there are
    cores. Lower it where other work shares the machine."""

    tls_certificate: str = ""
    """A PEM file: this server's certificate and those between it and its root, in order. With
    ``tls_key``, all connections are TLS. New files hold for the next connection. Empty: none."""

    tls_key: str = ""
    """A PEM file: the key of that certificate, without a password."""

    tls_client_ca: str = ""
    """A PEM file of authorities. A client needs a certificate that one of them has signed.
    Empty: it needs none."""

    token_file: str = ""
    """A file of one token, 16 to 4096 letters, digits and ``-._~+/=``, which every call but those
    for health must bring. A new one holds within a second. Empty: none is asked for."""

    token_without_tls: bool = False
    """Whether a token may come over connections that are not TLS from other machines, where who
    listens can take it. For servers behind a proxy that does TLS."""

    default_timeout_ms: int = 1000
    """Deadline of a request whose client states none, in milliseconds, at least 1."""

    sample_tolerance: float = 1e-5
    """Largest difference allowed, at start, between the scores of the package's samples and those
    that the package says they must have; relative to scores beyond 1, and 100 times as much where
    the dense program is in bfloat16. 0: none. Raise it where this
    machine's arithmetic differs from the exporter's by more, for instance to 1e-3."""

    max_request_examples: int = 0
    """Most examples that one request may hold, where the package does not allow less. 0: what the
    package allows, but no more than may be queued. One that is larger than a batch is cut into
    pieces, and their outputs joined: raise it with the package's limit, not for the machine."""

    max_request_ids: int = 0
    """Most ids of one request, likewise."""

    max_batch_examples: int = 0
    """Most examples run at once: the largest piece of a request. 0: 1024, or ``merge_examples``
    where that is more, and no more than may be queued. Others wait while it runs, and a batch's
    memory grows with it."""

    max_batch_ids: int = 0
    """Most ids looked up at once, likewise; one example that has more runs alone. 0: 2**20."""

    merge_examples: int = 0
    """Requests are merged up to so many examples. A larger one runs alone. 0: 512, and never more
    than ``max_batch_examples``: beyond some hundreds an example costs no less, and all that are in
    a batch wait for it. Raise it where a model gains from more; 1: none are merged."""

    max_queued_examples: int = 0
    """Examples waiting at once. Beyond this, requests are refused at once, not served late.
    0: eight of the largest requests, of 4096 examples and 2**20 ids at least."""

    max_queued_ids: int = 0
    """Ids waiting at once, likewise."""

    max_queued_bytes: int = 256 << 20
    """Memory of the messages waiting at once, in bytes, likewise. The batch that runs may hold as
    much again. Raise it where one message is large."""

    max_inline_us: int = 500
    """Longest batch, in microseconds, as predicted, that the thread which brings a request runs
    itself while the model is idle. 0: none. It reads no other request meanwhile; lower it where
    those behind notice."""

    max_message_bytes: int = 64 << 20
    """Largest message taken, in bytes, below 2**31."""

    max_connections: int = 4096
    """Connections open at once. One more is hung up on as it comes; those that are there are
    served on. 0: as many as the process may open files. Raise it where more clients connect: each
    takes a file and some tens of kB."""

    max_connection_calls: int = 10_000
    """Calls open at once on one connection, at least 1. Clients hold further ones back until one
    ends. Raise it where one client has more requests in flight."""

    stream_in_flight: int = 256
    """Requests of one stream that are read and not answered yet, at least 1. Beyond it nothing more
    is read from the stream, and its client waits. Raise it where one stream carries a lot."""

    connection_idle_seconds: float = 300.0
    """How long a connection may be without a call before it is closed. 0: for ever."""

    connection_age_seconds: float = 0.0
    """After about this long a connection is closed: what is open on it has 30 s to end, and clients
    connect again. 0: never. Set it where connections, not calls, are spread over servers, so that
    a new server gets its share."""

    keepalive_seconds: float = 60.0
    """A client that has calls open and says nothing for this long is asked whether it is there, and
    hung up on after 20 s without an answer. 0: it is not asked."""

    min_ping_seconds: float = 10.0
    """How often a client may ask (HTTP/2 ping) in turn, with calls open or without. Who asks sooner
    three times is hung up on. 0: as often as it likes."""

    slow_request_ms: float = 0.0
    """From this long on, in milliseconds, a request is kept for `Server.wait_slow`, and so for the
    log of ``embershard serve``. 0: none is."""

    memory_budget: int = 0
    """Most bytes that the loaded versions may take together: tables that are copied
    (``tables="resident"``), vocabularies, programs, and what is loaded while another is served.
    Beyond it a version is not loaded. 0: 80 % of the memory that this process may use."""

    load_mb_per_second: float = 200.0
    """How fast files are read while requests are answered, in 10^6 bytes a second: a version that
    is loaded later takes the disk and the processor from them. At the start they are read as fast
    as they can be. 0: always so."""

    shadow_share: float = 0.0
    """Share of the requests, 0 to 1, that are copied to the version labelled ``shadow``. Nobody
    gets its answers; they are compared with those that are given. 0: none."""

    control: str = ""
    """A Unix socket to make, for ``embershard load`` and ``unload``. Whoever may write to it (its
    owner) decides what is served. Empty: none, and SIGHUP alone has the repository looked at
    again."""

    record: str = ""
    """A file to make, for `embershard bench --replay`: sampled requests, whole, and what they were
    answered. Only its owner may read it, since it holds what users sent. Empty: none."""

    record_requests: int = 10_000
    """Most requests in that file, at least 1. It also ends at 1 GiB."""

    record_share: float = 1.0
    """Share of the requests that go there, above 0, at most 1. Lower it to spread the file over
    more time."""

    drain_timeout_seconds: float = 30.0
    """How long a stopping server works on what it has accepted. 0: not at all."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port: expected 0..65535, got {self.port}")
        if bool(self.tls_certificate) != bool(self.tls_key):
            given = "tls_certificate" if self.tls_certificate else "tls_key"
            raise ConfigError(f"tls_certificate and tls_key: expected both or none, got {given}")
        if self.tls_client_ca and not self.tls_certificate:
            raise ConfigError("tls_client_ca: expected tls_certificate and tls_key with it")
        if self.tables not in get_args(TableResidency):
            raise ConfigError(f"tables: expected mmap or resident, got {self.tables!r}")
        if not 0 <= self.threads <= 1024:
            raise ConfigError(f"threads: expected 0..1024, got {self.threads}")
        if not (self.sample_tolerance >= 0 and math.isfinite(self.sample_tolerance)):
            raise ConfigError(
                f"sample_tolerance: expected a finite number of at least 0,"
                f" got {self.sample_tolerance}"
            )
        for name, least in LEAST.items():
            if not least <= getattr(self, name) <= MOST:
                raise ConfigError(f"{name}: expected {least}..{MOST}, got {getattr(self, name)}")
        if not 0 <= self.memory_budget < 1 << 62:
            raise ConfigError(f"memory_budget: expected 0..2**62, got {self.memory_budget}")
        if not 0 <= self.shadow_share <= 1:
            raise ConfigError(f"shadow_share: expected 0..1, got {self.shadow_share}")
        if not 0 < self.record_share <= 1:
            raise ConfigError(
                f"record_share: expected above 0 and at most 1, got {self.record_share}"
            )
        for name in (
            "slow_request_ms",
            "drain_timeout_seconds",
            "load_mb_per_second",
            *SECONDS_OF_CONNECTIONS,
        ):
            if not 0 <= getattr(self, name) <= MOST:
                raise ConfigError(f"{name}: expected 0..{MOST}, got {getattr(self, name)}")
