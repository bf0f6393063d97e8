"""Options of a server. Their values are checked when they are built."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from embershard.errors import ConfigError
from embershard.serving.option import check_options, native_options, option, path_option
from embershard.serving.traffic_split import parse_traffic, parse_weights

TableResidency = Literal["mmap", "resident"]


def plan_option() -> str:
    """The option ``plan`` of servers and of Triton."""
    about = "which of the package's plans places the tables"
    text: str = option("", about, unit="NAME", zero="the package's default")
    return text


def dense_program_option() -> str:
    """The option ``dense_program`` of servers and of Triton."""
    text: str = option(
        "",
        "how to run the package's dense program: cpu, as exported; cpu-fp32, with layers in bf16 "
        "run in fp32",
        unit="TARGET",
        zero="cpu-fp32 if layers are in bf16 and the processor does not multiply it, else cpu",
    )
    return text


def tables_option() -> TableResidency:
    """The option ``tables`` of servers and of Triton."""
    residency: TableResidency = option(
        "mmap",
        "mmap: read from the files as needed, shared with the page cache; resident: copied into "
        "memory at the start, in huge pages if the system gives them",
        change="Use resident for large tables under steady load",
        choices=("mmap", "resident"),
    )
    return residency


_versions = partial(option, group="versions")
_batches = partial(option, group="batches")
_limits = partial(option, group="limits")
_connections = partial(option, group="connections")
_security = partial(option, group="security")
_secured = partial(path_option, group="security")
_recording = partial(option, group="recording")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a server: where it listens, how it places tables, and the limits of its queue.

    An option is declared only here. The extension takes it by its name, and `embershard serve` as a
    flag with ``-`` for ``_``. `embershard serve --help` and docs/cli.md show all options.
    """

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in")
    port: int = option(
        50051, "port to listen on", zero="a free one, which is printed", unit="PORT", most=65535
    )
    plan: str = plan_option()
    dense_program: str = dense_program_option()
    tables: TableResidency = tables_option()  # noqa: RUF009
    half_transfers: bool = option(
        False,
        "with a plan for several GPUs: vectors travel between them as float16, in half of the "
        "bytes and rounded to 11 bits",
    )
    traffic: str = option(
        "",
        "split the requests that name neither a version nor a label: canary=5 sends 5 % to the "
        "version labelled canary (or stable), by the hash of the request's traffic key, else at "
        "random; all go to the default while no version has the label, or its inputs or outputs "
        "are others",
        unit="LABEL=PERCENT",
        is_native=False,
    )
    control: str | None = path_option(
        "a Unix socket to make, for embershard load and unload; its owner alone may use it",
        unit="SOCKET",
        is_native=False,
    )

    sample_tolerance: float = option(
        1e-5,
        "largest difference allowed from the scores that the package says its samples have, "
        "relative to scores beyond 1; 100 times as much if the dense program is in bf16, 1000 "
        "times if its layers run in fp32 or the plan is for GPUs",
        unit="X",
        change="Raise it if this machine's arithmetic differs from the exporter's by more",
        group="start",
    )

    memory_budget: int = _versions(
        0,
        "most that loaded versions take together: copied tables, vocabularies, programs, and what "
        "is loaded while another is served",
        unit="BYTES",
        zero="80 % of the memory that this process may use",
        most=(1 << 62) - 1,
    )
    load_mb_per_second: float = _versions(
        200.0,
        "how fast a version is read while requests are answered, in 10^6 bytes a second",
        unit="MB",
        zero="at full speed, as at the start",
    )
    load_timeout_seconds: float = _versions(
        600.0,
        "a version that makes no progress (no bytes read, no sample run) for so long while it "
        "loads is given up; two such loads may hang at once",
        unit="S",
        zero="never",
        change="Not below the time that the largest vocabulary or dense program takes",
    )
    shadow_share: float = _versions(
        0.0,
        "share of the requests copied to the version labelled shadow, as far as --shadow-time "
        "has room for them; the rest are dropped",
        unit="S",
        zero="none",
        most=1,
    )
    shadow_time: float = _versions(
        1 / 128,
        "share of the time, 0.001 to 1, in which these copies run at most. Copies that find 256 or "
        "64 MiB waiting are dropped",
        unit="S",
        change="Raise it to have more compared; from 0.01 on the 99th percentile may show it",
        least=0.001,
        most=1,
        needs="shadow_share",
    )

    threads: int = _batches(
        0,
        "threads of lookups and of the dense program",
        unit="N",
        zero="one a core, of a CPU quota the whole ones",
        change="Lower it if other work shares the machine",
        most=1024,
    )
    slots: int = _batches(
        0,
        "batches run at once, which share the threads; each takes memory for a batch",
        unit="N",
        zero="one a thread, with a plan for GPUs 3",
        change="Lower it if one request is so large that it needs more threads to be in time",
        most=1024,
    )
    model_weights: str = _batches(
        "",
        "parts of the time that models get while several have requests queued, as ranker=2,ads=1; "
        "a model that is not named has 1",
        unit="NAME=WEIGHT,...",
        zero="equal parts",
        is_native=False,
    )
    max_batch_examples: int = _batches(
        0,
        "most examples run at once; a larger request is split, and runs in all idle slots",
        unit="N",
        zero="as many as are merged, at least 256, with one slot 1024",
    )
    max_batch_ids: int = _batches(
        0,
        "most ids looked up at once, likewise; one example that has more runs alone",
        unit="N",
        zero="2**20",
    )
    merge_examples: int = _batches(
        0,
        "requests are merged up to so many examples; 1: none are",
        unit="N",
        zero="256, and never more than max_batch_examples",
        change="Raise it if a model gains from more",
    )
    max_inline_us: int = _batches(
        500,
        "longest batch, as predicted, run by the thread that reads its request while the model is "
        "idle",
        unit="US",
        zero="none",
        change="Lower it if requests behind notice: that thread reads no other meanwhile",
    )

    default_timeout_ms: int = _limits(
        1000, "deadline of requests that state none", unit="MS", least=1
    )
    max_request_examples: int = _limits(
        0, "most examples of one request", unit="N", zero="what the package allows"
    )
    max_request_ids: int = _limits(
        0, "most ids of one request", unit="N", zero="what the package allows"
    )
    max_queued_examples: int = _limits(
        0,
        "examples that may wait; beyond it, requests are refused at once",
        unit="N",
        zero="eight of the largest requests, of 4096 examples and 2**20 ids at least",
    )
    max_queued_ids: int = _limits(
        0, "ids that may wait, likewise", unit="N", zero="eight of the largest requests"
    )
    max_queued_bytes: int = _limits(
        256 << 20,
        "memory of the messages that may wait; the batch that runs may hold as much again",
        unit="BYTES",
        change="Raise it if one message is large",
        least=1,
    )
    max_message_bytes: int = _limits(64 << 20, "largest message taken", unit="BYTES", least=1)
    drain_timeout_seconds: float = _limits(
        30.0,
        "how long a stopping server works on what it has accepted",
        unit="S",
        zero="not at all",
        is_native=False,
    )

    max_connections: int = _connections(
        4096,
        "connections open at once; one more is closed on arrival. Each takes a file and some tens "
        "of kB",
        unit="N",
        zero="as many as the process may open files",
    )
    max_connection_calls: int = _connections(
        10_000,
        "calls open at once on a connection; clients hold further ones back",
        unit="N",
        change="Raise it if one client has more requests in flight",
        least=1,
    )
    stream_in_flight: int = _connections(
        256,
        "requests of a stream read before they are answered",
        unit="N",
        change="Raise it if one stream carries a lot",
        least=1,
    )
    connection_idle_seconds: float = _connections(
        300.0, "a connection is closed after so long without a call", unit="S", zero="never"
    )
    connection_age_seconds: float = _connections(
        0.0,
        "a connection is closed after about so long; open calls have 30 s to end",
        unit="S",
        zero="never",
        change="Set it if connections, not calls, are spread over servers",
    )
    keepalive_seconds: float = _connections(
        60.0,
        "a client with calls open that is silent for so long gets a ping, and is disconnected "
        "after 20 s without an answer",
        unit="S",
        zero="no pings",
    )
    min_ping_seconds: float = _connections(
        10.0,
        "how often a client may send a ping; one that sends three sooner is disconnected",
        unit="S",
        zero="as often as it likes",
    )

    tls_certificate: str | None = _secured(
        "the server's certificate and those between it and its root, in order; with --tls-key, all "
        "connections are TLS. New files hold for the next connection",
        unit="PEM",
    )
    tls_key: str | None = _secured("its key, without a password", unit="PEM")
    tls_client_ca: str | None = _secured(
        "authorities, one of which must have signed a client's certificate",
        unit="PEM",
        zero="clients need none",
        needs="tls_certificate",
    )
    token_file: str | None = _secured(
        "file of 1 to 8 tokens, one on each line, each 16 to 4096 letters, digits and -._~+/=. "
        "Every call except health needs one of them. Changes are read within a second",
        unit="FILE",
    )
    token_without_tls: bool = _security(
        False,
        "let the token cross the network unencrypted: for servers behind a proxy that does TLS",
        is_native=False,
        needs="token_file",
    )
    behind_proxy: bool = _security(
        False,
        "do not reset connections for want of an authenticated call: for servers behind a proxy, "
        "whose connections carry calls of several clients",
        needs="token_file",
    )
    model_control: bool = _security(
        False,
        "let clients load and unload models over the port (Open Inference Protocol); on other than "
        "loopback addresses it needs --token-file or --tls-client-ca",
    )
    reflection: bool = _security(
        False,
        "describe the services to clients without a .proto file, such as grpcurl; with "
        "--token-file they need the token",
    )
    trusted_key: str | None = _secured(
        "public keys (Ed25519): load only versions that one of them has signed, see embershard "
        "sign",
        unit="PEM",
        zero="all versions are loaded",
    )

    slow_request_ms: float = option(
        0.0,
        "log each request that takes as long",
        unit="MS",
        zero="none",
        group="metrics and logs",
        flag="slow-ms",
    )

    record: str | None = path_option(
        "write a sample of the requests and their answers to a new file, which only its owner may "
        "read, for bench --replay",
        unit="FILE",
        group="recording",
    )
    record_requests: int = _recording(
        10_000,
        "most requests in it; it also ends at 1 GiB",
        unit="N",
        least=1,
        needs="record",
    )
    record_share: float = _recording(
        1.0,
        "share of the requests that go there, above 0",
        unit="S",
        change="Lower it to spread the file over more time",
        most=1,
        needs="record",
    )

    def __post_init__(self) -> None:
        if self.record_share == 0:
            raise ConfigError("record_share: expected above 0 and at most 1, got 0")
        check_options(self)
        if (self.tls_certificate is None) != (self.tls_key is None):
            only = "tls_certificate" if self.tls_certificate else "tls_key"
            raise ConfigError(f"tls_certificate and tls_key: expected both or none, got {only}")
        parse_traffic(self.traffic)
        parse_weights(self.model_weights)


def native_keywords(options: ServerOptions) -> dict[str, object]:
    """Keyword arguments of the extension, with the traffic split and the weights parsed."""
    split = parse_traffic(options.traffic)
    return {
        **native_options(options),
        "traffic_label": split.label,
        "traffic_share": split.share,
        "model_weights": parse_weights(options.model_weights),
    }
