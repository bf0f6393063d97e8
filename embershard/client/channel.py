"""How a client's connection is made: in the open or with TLS, with a token or without."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from embershard.errors import InputError

CHANNEL_OPTIONS = (
    # Ranking requests pass gRPC's default of 4 MiB; the server states its own limit.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A lost connection is tried again as soon as gRPC may, so that a retry can find the server
    # that took its place. By default it fails for a second without trying.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A server that vanishes without a word ends its streams, which have no deadline, within 80 s.
    # Asked while a call is open, for as long as it is.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)

TOKEN_CHARS_MAX = 4096
TOKEN = re.compile(rf"[!-~]{{0,{TOKEN_CHARS_MAX}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS as a client does it. Files are PEM, and are read when the client is made.

    ::

        from embershard import Tls

        Client("ranker.example:50051", tls=Tls(ca="ca.pem"))
    """

    ca: str | Path | None = None
    """Authorities, one of which must have signed the server's certificate. None: those that gRPC
    ships, or that GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names."""

    certificate: str | Path | None = None
    """The client's own, for servers that ask for one, and those between it and its root."""

    key: str | Path | None = None
    """The key of that certificate."""

    server_name: str = ""
    """The name that the server's certificate must have. Empty: the host of the address."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            given = "key" if self.certificate is None else "certificate"
            raise InputError(f"tls: expected certificate and key or neither, got only {given}")

    def texts(self) -> tuple[bytes, bytes, bytes]:
        """``ca``, ``certificate`` and ``key``, each empty where there is none.

        Raises:
            InputError: a file that cannot be read, or is no PEM.
        """
        ca, certificate, key = (
            b"" if path is None else _pem_of(path) for path in (self.ca, self.certificate, self.key)
        )
        return ca, certificate, key

    def credentials(self) -> grpc.ChannelCredentials:
        """
        Raises:
            InputError: as of `texts`.
        """
        ca, certificate, key = self.texts()
        return grpc.ssl_channel_credentials(
            root_certificates=ca or None,
            private_key=key or None,
            certificate_chain=certificate or None,
        )


def check_token(token: object) -> str:
    """The token itself, without white space around it, as a file's end of line. Empty: none."""
    if isinstance(token, str) and TOKEN.fullmatch(stripped := token.strip()):
        return stripped
    raise InputError(
        f"token: expected at most {TOKEN_CHARS_MAX} printable ASCII characters without spaces"
    )


def read_token(path: str | Path) -> str:
    """The first token of a file that may hold several, one a line, as a server's does."""
    token = check_token(_bytes_of("token", path).decode("latin-1").strip().partition("\n")[0])
    if not token:
        raise InputError(f"token: {path}: expected a token, got an empty file")
    return token


def with_token(method: Callable[..., Any], token: str) -> Callable[..., Any]:
    """The method of a channel, with the token in every call. Empty: the method itself.

    As a header rather than as gRPC's call credentials, which connections without TLS refuse.
    """
    if not token:
        return method
    return functools.partial(method, metadata=(("authorization", f"Bearer {token}"),))


def open_channel(address: str, tls: Tls | None, kind: Any, options: Any = CHANNEL_OPTIONS) -> Any:
    """Nothing is sent yet. ``kind``: ``grpc``, or ``grpc.aio`` for the event loop that runs.
    `InputError`: a file that cannot be read."""
    if tls is None:
        return kind.insecure_channel(address, options=options)
    if not isinstance(tls, Tls):
        raise InputError(f"tls: expected a Tls or None, got {type(tls).__name__}")
    if tls.server_name:
        options = (*options, ("grpc.ssl_target_name_override", tls.server_name))
    return kind.secure_channel(address, tls.credentials(), options=options)


def _pem_of(path: str | Path) -> bytes:
    text = _bytes_of("tls", path)
    if b"-----BEGIN " not in text:
        raise InputError(f"tls: {path}: expected PEM, which has a line -----BEGIN, got none")
    return text


def _bytes_of(what: str, path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{what}: {path}: cannot be read: {error.strerror}") from error
