"""The server under load: where it is, what it serves, whether it takes what we send."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import grpc

from embershard._proto import predictor_pb2 as pb
from embershard.bench.load_options import PooledRequest
from embershard.bench.protocols import METHODS
from embershard.client import ServedModel, Tls
from embershard.client.channel import check_token, with_token
from embershard.client.schema import served_model
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
"""What every request like it would get. The others may pass, and are counted."""


class OtherServerError(RequestError):
    """A server of another make, which does not know our calls."""


@dataclass(frozen=True, slots=True)
class Target:
    """An address that is resolved once, so that all calls go to one place."""

    host: str
    """Numeric."""

    port: int
    tls: Tls | None = None
    """With the name that the server's certificate must have. None: without TLS."""

    token: str = field(default="", repr=False)
    """That every call carries. Empty: none."""

    @property
    def name(self) -> str:
        """As gRPC writes it."""
        if ":" in self.host:
            return f"ipv6:[{self.host}]:{self.port}"
        return f"ipv4:{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether it is a loopback address."""
        return ipaddress.ip_address(self.host).is_loopback


def find_target(
    address: str, *, allow_remote: bool = False, tls: Tls | None = None, token: str = ""
) -> Target:
    """Resolve ``host:port``."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f"target: expected HOST:PORT, got {address!r}")
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(f"target: {host!r} does not resolve: {error}") from error
    if tls is not None and not tls.server_name:
        tls = replace(tls, server_name=host)
    token = check_token(token)
    targets = [Target(str(entry[4][0]), int(port), tls, token) for entry in found]
    remote = [each for each in targets if not each.is_local]
    if remote and not allow_remote:
        raise InputError(
            f"target: expected a loopback address, got {remote[0].host}: "
            "--allow-remote puts load on another machine"
        )
    return targets[0]


def ask_model(
    target: Target, model: str, *, timeout_seconds: float, version: int = 0, label: str = ""
) -> ServedModel:
    """What the server says of a model: of its default version, unless one or a label is named.
    `OtherServerError`: a server of another make."""
    with _channel(target) as channel:
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
    """Send a few requests one by one, so that a run begins with ones that are understood. Returns
    how many ids the model did not know, by feature; raises what refuses them, as `try_method`."""
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
    """Send a few requests one by one, and return the answers that there were: a call may fail for
    what passes. A server that refuses such requests is an error with its words."""
    answers = []
    with _channel(target) as channel:
        call = with_token(channel.unary_unary(method), target.token)
        for request in requests:
            try:
                answers.append(call(request.message, timeout=timeout_seconds))
            except grpc.RpcError as failure:
                if failure.code() in REFUSED:
                    raise error_of(failure, address=target.name) from failure
    return answers


def _channel(target: Target) -> grpc.Channel:
    if target.tls is None:
        return grpc.insecure_channel(target.name, options=CHANNEL_OPTIONS)
    options = (*CHANNEL_OPTIONS, *target.tls.channel_options())
    return grpc.secure_channel(target.name, target.tls.credentials(), options=options)
