"""Options of a server, which are checked when they are built."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from embershard.errors import ConfigError
from embershard.serving.option import check_options, native_options, option, path_option
from embershard.serving.traffic_split import parse_traffic, parse_weights

TableResidency = Literal["mmap", "resident"]


def plan_option() -> str:
    about = "the package's plan that places the tables"
    text: str = option("", about, unit="NAME", zero="the package's default")
    return text


def dense_program_option() -> str:
    text: str = option(
        "",
        "how to run the package's dense program: cpu, as it was exported; cpu-fp32, with its bf16 "
        "layers in fp32",
        unit="TARGET",
        zero="cpu-fp32 if it has bf16 layers and the processor has no bf16 instructions, else cpu",
    )
    return text


def tables_option() -> TableResidency:
    residency: TableResidency = option(
        "mmap",
        "mmap: rows are read from the files when they are needed, through the page cache; "
        "resident: tables are copied into memory at the start, in huge pages if possible",
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

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 allows other machines")
    port: int = option(
        50051, "port to listen on", zero="a free port, which is printed", unit="PORT", most=65535
    )
    plan: str = plan_option()
    dense_program: str = dense_program_option()
    tables: TableResidency = tables_option()  # noqa: RUF009
    half_transfers: bool = option(
        False,
        "with a plan for several GPUs: send vectors between them as float16, which halves the "
        "bytes and rounds to 11 bits",
    )
    traffic: str = option(
        "",
        "split requests that name neither version nor label: canary=5 sends 5 % of them to the "
        "version labelled canary; stable works too. They are chosen by a hash of their traffic "
        "key, or at random without one. The default version gets all of them while no version has "
        "the label, or if that version has other inputs or outputs",
        unit="LABEL=PERCENT",
        is_native=False,
    )
    control: str | None = path_option(
        "create a Unix socket for embershard load and unload, which only its owner may use",
        unit="SOCKET",
        is_native=False,
    )

    sample_tolerance: float = option(
        1e-5,
        "largest difference from the stored scores of the package's samples, relative for scores "
        "beyond 1; 100 times as much if the dense program is in bf16, 1000 times if its bf16 "
        "layers run in fp32 or the plan is for GPUs",
        unit="X",
        change="Raise it if this machine's arithmetic differs from the exporter's by more",
        group="start",
    )

    memory_budget: int = _versions(
        0,
        "most memory of all versions together: copied tables, vocabularies, programs, and a "
        "version that is being loaded while another is served",
        unit="BYTES",
        zero="80 % of the memory that this process may use",
        most=(1 << 62) - 1,
    )
    load_mb_per_second: float = _versions(
        200.0,
        "speed at which a version is read while requests are answered, in 10^6 bytes a second",
        unit="MB",
        zero="no limit, as at the start",
    )
    load_timeout_seconds: float = _versions(
        600.0,
        "give up loading a version after this time without progress (no byte read, no sample "
        "run); while two such loads hang, further loads are refused",
        unit="S",
        zero="never",
        change="Keep it above the time that the largest vocabulary or dense program takes to load",
    )
    shadow_share: float = _versions(
        0.0,
        "share of requests that are copied to the version labelled shadow; copies beyond "
        "--shadow-time are dropped",
        unit="S",
        zero="none",
        most=1,
    )
    shadow_time: float = _versions(
        1 / 128,
        "largest share of time, 0.001 to 1, in which these copies run. A copy is dropped if 256 "
        "copies or 64 MiB are waiting",
        unit="S",
        change="Raise it to compare more requests; from 0.01 on, it may slow the 99th percentile",
        least=0.001,
        most=1,
        needs="shadow_share",
    )

    threads: int = _batches(
        0,
        "threads of lookups and of the dense program",
        unit="N",
        zero="one for each core, or for each whole core of a CPU quota",
        change="Lower it if other programs need the cores too",
        most=1024,
    )
    slots: int = _batches(
        0,
        "batches that run at the same time and share the threads; each takes the memory of a batch",
        unit="N",
        zero="one for each thread, or 3 with a plan for GPUs",
        change="Lower it if a single request needs several threads to meet its deadline",
        most=1024,
    )
    model_weights: str = _batches(
        "",
        "shares of time of models that have requests queued, as in ranker=2,ads=1; other models "
        "have weight 1",
        unit="NAME=WEIGHT,...",
        zero="equal shares",
        is_native=False,
    )
    max_batch_examples: int = _batches(
        0,
        "most examples of a batch; a larger request is split, and runs in all idle slots",
        unit="N",
        zero="merge_examples, but at least 256, or 1024 with one slot",
    )
    max_batch_ids: int = _batches(
        0,
        "most ids of a batch; a larger request is split, and an example with more ids runs alone",
        unit="N",
        zero="2**20",
    )
    merge_examples: int = _batches(
        0,
        "merge requests up to this number of examples; 1: do not merge",
        unit="N",
        zero="256, or max_batch_examples if that is less",
        change="Raise it if the model is faster with larger batches",
    )
    max_inline_us: int = _batches(
        500,
        "while the model is idle, run a batch on the thread that reads its request if the "
        "predicted time is at most this",
        unit="US",
        zero="never",
        change="Lower it if later requests are delayed, because that thread reads none meanwhile",
    )

    default_timeout_ms: int = _limits(
        1000, "timeout of requests that have none", unit="MS", least=1
    )
    max_request_examples: int = _limits(
        0, "most examples of one request", unit="N", zero="the package's limit"
    )
    max_request_ids: int = _limits(
        0, "most ids of one request", unit="N", zero="the package's limit"
    )
    max_queued_examples: int = _limits(
        0,
        "most examples in the queue; further requests are refused immediately",
        unit="N",
        zero="8 times the largest request or batch, but at least 8 x 4096",
    )
    max_queued_ids: int = _limits(
        0,
        "most ids in the queue; further requests are refused immediately",
        unit="N",
        zero="8 times the largest request or batch, but at least 8 x 2**20",
    )
    max_queued_bytes: int = _limits(
        256 << 20,
        "most memory of queued messages; running batches may hold the same amount in addition",
        unit="BYTES",
        change="Raise it if single messages are large",
        least=1,
    )
    max_message_bytes: int = _limits(64 << 20, "largest accepted message", unit="BYTES", least=1)
    drain_timeout_seconds: float = _limits(
        30.0,
        "time in which a stopping server finishes accepted requests",
        unit="S",
        zero="they are not finished",
        is_native=False,
    )

    max_connections: int = _connections(
        4096,
        "most open connections; a further one is closed immediately. Each takes a file descriptor "
        "and some tens of kB",
        unit="N",
        zero="the process's limit of open files",
    )
    max_connection_calls: int = _connections(
        10_000,
        "most open calls of a connection; clients delay further ones",
        unit="N",
        change="Raise it if a client has more requests in flight",
        least=1,
    )
    stream_in_flight: int = _connections(
        256,
        "most unanswered requests that are read from a stream",
        unit="N",
        change="Raise it if a single stream carries many requests",
        least=1,
    )
    connection_idle_seconds: float = _connections(
        300.0, "close a connection after this time without a call", unit="S", zero="never"
    )
    connection_age_seconds: float = _connections(
        0.0,
        "close a connection at about this age; its open calls have 30 s to end",
        unit="S",
        zero="never",
        change="Set it if connections, not calls, are distributed over servers",
    )
    keepalive_seconds: float = _connections(
        60.0,
        "ping a client that has open calls but has sent nothing for this time, and disconnect it "
        "20 s later if it does not answer",
        unit="S",
        zero="no pings",
    )
    min_ping_seconds: float = _connections(
        10.0,
        "shortest time between pings of a client; it is disconnected after three that are sooner",
        unit="S",
        zero="no limit",
    )

    tls_certificate: str | None = _secured(
        "file of the server's certificate, followed by its intermediate certificates; with "
        "--tls-key, all connections use TLS. Changed files apply to new connections",
        unit="PEM",
    )
    tls_key: str | None = _secured("file of its key, without a password", unit="PEM")
    tls_client_ca: str | None = _secured(
        "file of authorities, one of which must have signed a client's certificate",
        unit="PEM",
        zero="clients need no certificate",
        needs="tls_certificate",
    )
    token_file: str | None = _secured(
        "file of 1 to 8 tokens, one on each line, of 16 to 4096 letters, digits and -._~+/=. Every "
        "call except health checks needs one. Changes apply within a second",
        unit="FILE",
    )
    token_without_tls: bool = _security(
        False,
        "allow the token to cross the network unencrypted: for servers behind a proxy that does "
        "TLS",
        is_native=False,
        needs="token_file",
    )
    behind_proxy: bool = _security(
        False,
        "do not reset connections that have made no authenticated call: for servers behind a "
        "proxy, whose connections carry calls of several clients",
        needs="token_file",
    )
    model_control: bool = _security(
        False,
        "allow clients to load and unload models over the port (Open Inference Protocol); needs "
        "--token-file or --tls-client-ca, except on a loopback address",
    )
    reflection: bool = _security(
        False,
        "describe the services to clients without a .proto file, such as grpcurl; with "
        "--token-file they need the token",
    )
    trusted_key: str | None = _secured(
        "file of public keys (Ed25519): load only versions that one of them has signed, see "
        "embershard sign",
        unit="PEM",
        zero="signatures are not checked",
    )

    slow_request_ms: float = option(
        0.0,
        "log each request that takes at least this time",
        unit="MS",
        zero="none",
        group="metrics and logs",
        flag="slow-ms",
    )

    record: str | None = path_option(
        "write a sample of the requests and their answers to a new file for bench --replay, which "
        "only its owner may read",
        unit="FILE",
        group="recording",
    )
    record_requests: int = _recording(
        10_000,
        "most requests to record; the recording also ends at 1 GiB",
        unit="N",
        least=1,
        needs="record",
    )
    record_share: float = _recording(
        1.0,
        "share of requests to record, above 0",
        unit="S",
        change="Lower it to record over a longer time",
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
