"""What can be set on a server. Valid once built."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from embershard.errors import ConfigError
from embershard.serving.traffic_split import parse_traffic

__all__ = ["ServerOptions", "TableResidency", "native_keywords"]

TableResidency = Literal["mmap", "resident"]

MOST: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Range:
    """Both ends belong to it."""

    least: float
    most: float = MOST


Count = Annotated[int, Range(0)]
Positive = Annotated[int, Range(1)]
NotNegative = Annotated[float, Range(0)]

PYTHONS_OWN: Final = {"control", "drain_timeout_seconds", "token_without_tls", "traffic"}
"""Options that the extension does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server listens, places tables and bounds its queue.

    Here, and nowhere else, an option has its name, type, range and default: the extension takes it
    by that name, and so does `embershard serve`, with ``-`` for ``_``.
    """

    host: str = "127.0.0.1"
    """Address to listen on. ``0.0.0.0`` lets other machines in."""

    port: Annotated[int, Range(0, 65535)] = 50051
    """0: a free one, which the server states once it listens."""

    plan: str = ""
    """Which of the package's plans places the tables. Empty: the package's default."""

    dense_program: str = ""
    """Target of the dense program: ``cpu`` is TorchScript. Empty: what ``embershard compile`` made,
    where the package has it; refused where none of that is for this machine."""

    tables: TableResidency = "mmap"
    """``mmap``: shared with the page cache, quick to start. ``resident``: copied into memory of
    the process, in huge pages where the system gives them; for large tables under steady load."""

    threads: Annotated[int, Range(0, 1024)] = 0
    """Threads of the lookups and, after them, inside the dense program. 0: as many as the
    process has cores, of a container's CPU quota the whole ones. Lower it where other work shares
    the machine."""

    slots: Annotated[int, Range(0, 1024)] = 0
    """Batches that run at once, with equal shares of the threads. A request that takes long is cut,
    and runs in all that stand idle. 0: one a thread, which answers most requests, and soonest under
    load. Lower it where one request is so large that it needs more
    threads to be in time. Each slot takes memory for a batch."""

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

    trusted_key: str = ""
    """A PEM file of public keys (Ed25519). A version is loaded, now or later, only if the signature
    beside it, which ``embershard sign`` writes, is by one of them. Empty: none is asked for."""

    default_timeout_ms: Positive = 1000
    """Deadline of a request whose client states none, in milliseconds, at least 1."""

    sample_tolerance: NotNegative = 1e-5
    """Largest difference allowed, at start, between the scores of the package's samples and those
    that the package says they must have; relative to scores beyond 1, and 100 times as much where
    the dense program is in bfloat16, 1000 times where that is compiled. 0: none. Raise it where
    this machine's arithmetic differs from the exporter's by more, for instance to 1e-3."""

    max_request_examples: Count = 0
    """Most examples that one request may hold, where the package does not allow less. 0: what the
    package allows, but no more than may be queued. One that is larger than a batch is cut into
    pieces, and their outputs joined: raise it with the package's limit, not for the machine."""

    max_request_ids: Count = 0
    """Most ids of one request, likewise."""

    max_batch_examples: Count = 0
    """Most examples run at once: the largest piece of a request. 0: ``merge_examples``,
    but at least 256, so that a large request runs in several slots at once, with one slot at least
    1024; and no more than may be queued. Others wait while it runs, and a batch's memory grows with
    it."""

    max_batch_ids: Count = 0
    """Most ids looked up at once, likewise; one example that has more runs alone. 0: 2**20."""

    merge_examples: Count = 0
    """Requests are merged up to so many examples. A larger one runs alone. 0: 256, and never more
    than ``max_batch_examples``: beyond some hundreds an example costs no less, and all that are in
    a batch wait for it. Raise it where a model gains from more; 1: none are merged."""

    max_queued_examples: Count = 0
    """Examples waiting at once. Beyond this, requests are refused at once, not served late.
    0: eight of the largest requests, of 4096 examples and 2**20 ids at least."""

    max_queued_ids: Count = 0
    """Ids waiting at once, likewise."""

    max_queued_bytes: Positive = 256 << 20
    """Memory of the messages waiting at once, in bytes, likewise. The batch that runs may hold as
    much again. Raise it where one message is large."""

    max_inline_us: Count = 500
    """Longest batch, in microseconds, as predicted, that the thread which brings a request runs
    itself while the model is idle. 0: none. It reads no other request meanwhile; lower it where
    those behind notice."""

    max_message_bytes: Positive = 64 << 20
    """Largest message taken, in bytes, below 2**31."""

    max_connections: Count = 4096
    """Connections open at once. One more is hung up on as it comes; those that are there are
    served on. 0: as many as the process may open files. Raise it where more clients connect: each
    takes a file and some tens of kB."""

    max_connection_calls: Positive = 10_000
    """Calls open at once on one connection, at least 1. Clients hold further ones back until one
    ends. Raise it where one client has more requests in flight."""

    stream_in_flight: Positive = 256
    """Requests of one stream that are read and not answered yet, at least 1. Beyond it nothing more
    is read from the stream, and its client waits. Raise it where one stream carries a lot."""

    connection_idle_seconds: NotNegative = 300.0
    """How long a connection may be without a call before it is closed. 0: for ever."""

    connection_age_seconds: NotNegative = 0.0
    """After about this long a connection is closed: what is open on it has 30 s to end, and clients
    connect again. 0: never. Set it where connections, not calls, are spread over servers, so that
    a new server gets its share."""

    keepalive_seconds: NotNegative = 60.0
    """A client that has calls open and says nothing for this long is asked whether it is there, and
    hung up on after 20 s without an answer. 0: it is not asked."""

    min_ping_seconds: NotNegative = 10.0
    """How often a client may ask (HTTP/2 ping) in turn, with calls open or without. Who asks sooner
    three times is hung up on. 0: as often as it likes."""

    slow_request_ms: NotNegative = 0.0
    """From this long on, in milliseconds, a request is kept for `Server.wait_slow`, and so for the
    log of ``embershard serve``. 0: none is."""

    memory_budget: Annotated[int, Range(0, (1 << 62) - 1)] = 0
    """Most bytes that the loaded versions may take together: tables that are copied
    (``tables="resident"``), vocabularies, programs, and what is loaded while another is served.
    Beyond it a version is not loaded. 0: 80 % of the memory that this process may use."""

    load_mb_per_second: NotNegative = 200.0
    """How fast files are read while requests are answered, in 10^6 bytes a second: a version that
    is loaded later takes the disk and the processor from them. At the start they are read as fast
    as they can be. 0: always so."""

    traffic: str = ""
    """``canary=5``: 5 % of the requests that name neither a version nor a label go to the version
    labelled ``canary`` (or ``stable``), 0 to 100. Requests with the same traffic key go to the same
    version; those without a key at random. All go to the default while a model has no such label,
    or the version has other inputs or outputs than the default. Empty: no split."""

    load_timeout_seconds: NotNegative = 600.0
    """A version is given up after so many seconds without progress while it loads: no bytes read,
    no sample run. It has failed then, and others load; its thread and its memory stay until it
    ends, if it ever does. At most two such loads may hang at once; one more version is refused. A
    package that is read slowly makes progress all the time. 0: never given up. Lower it to hear
    sooner of a program that does not end; not below the time that the largest vocabulary or dense
    program takes on a busy machine."""

    shadow_share: Annotated[float, Range(0, 1)] = 0.0
    """Share of the requests, 0 to 1, that are copied to the version labelled ``shadow``. Nobody
    gets its answers; they are compared with those that are given. ``shadow_time`` bounds what that
    costs; what it has no room for is dropped. 0: none."""

    shadow_time: Annotated[float, Range(0.001, 1)] = 1 / 128
    """Share of the time, 0.001 to 1, in which a batch of these copies is under way. Their thread
    rests behind each batch until the share holds, but never for more than a minute. Copies that
    find 256 or 64 MiB waiting are dropped. Raise it to have more compared; from 0.01 on, one
    request in a hundred arrives during a batch of copies, which the 99th percentile may show."""

    control: str = ""
    """A Unix socket to make, for ``embershard load`` and ``unload``. Whoever may write to it (its
    owner) decides what is served. Empty: none, and SIGHUP alone has the repository looked at
    again."""

    remote_orders: bool = False
    """Whether clients may have models loaded and unloaded over the port (the Open Inference
    Protocol's RepositoryModelLoad and RepositoryModelUnload): who may call then decides what is
    served to all. On other than loopback addresses it needs ``token_file`` or ``tls_client_ca``."""

    reflection: bool = False
    """Whether clients may ask which services and messages there are (gRPC server reflection v1 and
    v1alpha). With ``token_file`` they need the token. Turn it on for tools without .proto files,
    such as grpcurl."""

    record: str = ""
    """A file to make, for `embershard bench --replay`: sampled requests, whole, and what they were
    answered. Only its owner may read it, since it holds what users sent. Empty: none."""

    record_requests: Positive = 10_000
    """Most requests in that file, at least 1. It also ends at 1 GiB."""

    record_share: Annotated[float, Range(0, 1)] = 1.0
    """Share of the requests that go there, above 0, at most 1. Lower it to spread the file over
    more time."""

    drain_timeout_seconds: NotNegative = 30.0
    """How long a stopping server works on what it has accepted. 0: not at all."""

    def __post_init__(self) -> None:
        for name, (kind, allowed) in _numbers().items():
            _check_number(name, getattr(self, name), kind, allowed)
        if self.record_share == 0:
            raise ConfigError("record_share: expected above 0 and at most 1, got 0")
        if not self.record:
            defaults = {each.name: each.default for each in fields(self)}
            for name in ("record_requests", "record_share"):
                if (got := getattr(self, name)) != defaults[name]:
                    raise ConfigError(f"{name}: expected record, the file, with it, got {got:g}")
        if bool(self.tls_certificate) != bool(self.tls_key):
            given = "tls_certificate" if self.tls_certificate else "tls_key"
            raise ConfigError(f"tls_certificate and tls_key: expected both or none, got {given}")
        if self.tls_client_ca and not self.tls_certificate:
            raise ConfigError("tls_client_ca: expected tls_certificate and tls_key with it")
        if self.tables not in get_args(TableResidency):
            raise ConfigError(f"tables: expected mmap or resident, got {self.tables!r}")
        parse_traffic(self.traffic)


def native_keywords(options: ServerOptions) -> dict[str, object]:
    """What the extension takes: all but Python's own, by their names; traffic in its two parts."""
    split = parse_traffic(options.traffic)
    named = {
        each.name: getattr(options, each.name)
        for each in fields(options)
        if each.name not in PYTHONS_OWN
    }
    return {**named, "traffic_label": split.label, "traffic_share": split.share}


@cache
def _numbers() -> Mapping[str, tuple[type, Range]]:
    """Options that are numbers: which, and between what."""
    hints = get_type_hints(ServerOptions, include_extras=True)
    return {
        name: (hint.__origin__, hint.__metadata__[0])
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
    }


def _check_number(name: str, value: Any, kind: type, allowed: Range) -> None:
    is_number = isinstance(value, numbers.Integral if kind is int else numbers.Real)
    if is_number and allowed.least <= value <= allowed.most:
        return
    kinds = "a whole number, " if kind is int else "a number, "
    what = "" if is_number else kinds
    raise ConfigError(f"{name}: expected {what}{allowed.least}..{allowed.most}, got {value!r}")
