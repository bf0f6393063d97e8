"""The server under load: its address, its model, a trial of requests, and its CPU time."""

import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.bench.load_options import PooledRequest
from embershard.bench.protocols import METHODS
from embershard.client import ServedModel, Tls
from embershard.client.channel import check_token, open_channel, with_token
from embershard.client.prediction import served_model
from embershard.client.status import error_of
from embershard.errors import InputError, RequestError, UnavailableError

GET_MODEL: Final = "/embershard.v1.Predictor/GetModel"

CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
)

REFUSED = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}
"""Statuses that similar requests would get too. Others may be temporary, and runs count them."""


class OtherServerError(RequestError):
    """A server that is not ours: it has no GetModel."""


@dataclass(frozen=True, slots=True)
class Target:
    """An address that was resolved once, so that all calls reach one server."""

    host: str
    port: int

    tls: Tls | None = None
    """Includes the name that the server's certificate must have. None: without TLS."""

    token: str = field(default="", repr=False)

    @property
    def name(self) -> str:
        if ":" in self.host:
            return f"ipv6:[{self.host}]:{self.port}"
        return f"ipv4:{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback


def find_target(
    address: str, *, allow_remote: bool = False, tls: Tls | None = None, token: str = ""
) -> Target:
    """Resolve ``host:port``. ``allow_remote``: accept an address of another machine."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"target: expected HOST:PORT, got {address!r}")
    try:
        addresses = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that IDNA cannot encode.
        raise UnavailableError(f"target: {host!r} does not resolve: {error}") from error
    if tls is not None and not tls.server_name:
        tls = replace(tls, server_name=host)
    token = check_token(token)
    targets = [Target(str(address[4][0]), int(port), tls, token) for address in addresses]
    remote = [target for target in targets if not target.is_local]
    if remote and not allow_remote:
        raise InputError(
            f"target: expected a loopback address, got {remote[0].host}; pass --allow-remote to "
            "put load on another machine"
        )
    return targets[0]


def ask_model(
    target: Target, model: str, *, timeout_seconds: float, version: int = 0, label: str = ""
) -> ServedModel:
    """Ask for the model's description. `OtherServerError`: the server is not ours."""
    with open_channel(target.name, target.tls, grpc, CHANNEL_OPTIONS) as channel:
        get_model = with_token(
            channel.unary_unary(
                GET_MODEL,
                request_serializer=pb.GetModelRequest.SerializeToString,
                response_deserializer=pb.GetModelResponse.FromString,
            ),
            target.token,
        )
        try:
            request = pb.GetModelRequest(model=model, version=version, label=label)
            return served_model(get_model(request, timeout=timeout_seconds))
        except grpc.RpcError as failure:
            error = error_of(failure, address=target.name)
            if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise OtherServerError(str(error)) from failure
            raise error from failure


def try_requests(
    target: Target, requests: Sequence[PooledRequest], *, timeout_seconds: float
) -> dict[str, int]:
    """Send requests one by one. Returns unknown ids by feature. Raises the server's refusal."""
    unknown: dict[str, int] = {}
    for answer in try_method(
        target, METHODS["embershard"], requests, timeout_seconds=timeout_seconds
    ):
        for feature in pb.PredictResponse.FromString(answer).unknown_ids:
            unknown[feature.feature] = unknown.get(feature.feature, 0) + feature.count
    return unknown


def try_method(
    target: Target, method: str, requests: Sequence[PooledRequest], *, timeout_seconds: float
) -> list[bytes]:
    """Send requests one by one, and return the answers. Requests that fail temporarily have none.
    Raises the server's error if it refuses such requests."""
    answers = []
    with open_channel(target.name, target.tls, grpc, CHANNEL_OPTIONS) as channel:
        call = with_token(channel.unary_unary(method), target.token)
        for request in requests:
            try:
                answers.append(call(request.message, timeout=timeout_seconds))
            except grpc.RpcError as failure:
                if failure.code() in REFUSED:
                    raise error_of(failure, address=target.name) from failure
    return answers


LISTENING: Final = "0A"
"""State of a listening socket in /proc/net/tcp."""


def listening_processes(port: int, *, proc: Path = Path("/proc")) -> list[int]:
    """Other processes that listen on a TCP port. ``proc``: the kernel's folder of processes."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return []
    folders = (folder for folder in proc.iterdir() if folder.name.isdecimal())
    return sorted(
        int(folder.name)
        for folder in folders
        if int(folder.name) != os.getpid() and not sockets.isdisjoint(_links(folder / "fd"))
    )


def cpu_seconds(processes: Iterable[int], *, proc: Path = Path("/proc")) -> float | None:
    """User and system time. None if a process has ended."""
    ticks = 0
    for process in processes:
        try:
            line = (proc / str(process) / "stat").read_text()
        except OSError:
            return None
        # Field 2 is the name in parentheses, which may contain spaces and parentheses. The list
        # starts with field 3. Fields 14 and 15 are the user and system time.
        fields = line[line.rindex(")") + 2 :].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:  # A kernel without IPv6.
            continue
        for line in lines:
            _, local, _, state, *rest = line.split()
            if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]


def _links(folder: Path) -> Iterator[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:  # The process belongs to another user, or has ended.
        return
    for entry in entries:
        with suppress(OSError):  # The file may have been closed meanwhile.
            yield os.readlink(entry)
