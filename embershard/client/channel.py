"""Makes the connections of clients, with or without TLS and a token."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from embershard.errors import InputError

CHANNEL_OPTIONS = (
    # Ranking requests may exceed gRPC's default of 4 MiB. The server reports its own limit.
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Reconnect after 0.1 s at first and at most about 1 s later, so that a retry can reach a
    # restarted server. gRPC's default is 1 s at first and up to 120 s later.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Pings end a stream, which has no deadline, within 80 s if the server vanished silently. They
    # are sent while a call is open.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
)

TOKEN_CHARS_MAX = 4096
TOKEN = re.compile(rf"[!-~]{{0,{TOKEN_CHARS_MAX}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings of a client. Files are PEM and are read when the client is made.

    ::

        from embershard import Tls

        Client("ranker.example:50051", tls=Tls(ca="ca.pem"))
    """

    ca: str | Path | None = None
    """Authorities, one of which must have signed the server's certificate. None: those of
    GRPC_DEFAULT_SSL_ROOTS_FILE_PATH, or those that gRPC ships."""

    certificate: str | Path | None = None
    """The client's certificate with its intermediate certificates, for servers that require one."""

    key: str | Path | None = None
    """The key of that certificate."""

    server_name: str = ""
    """Name in the server's certificate. Empty: the host of the address."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            only = "key" if self.certificate is None else "certificate"
            raise InputError(f"tls: expected certificate and key or neither, got only {only}")

    def texts(self) -> tuple[bytes, bytes, bytes]:
        """Contents of ``ca``, ``certificate`` and ``key``, or empty bytes if they are not set.

        Raises InputError for a file that cannot be read or is not PEM.
        """
        ca, certificate, key = (
            b"" if path is None else _pem_of(path) for path in (self.ca, self.certificate, self.key)
        )
        return ca, certificate, key

    def credentials(self) -> grpc.ChannelCredentials:
        """Raises InputError, see `texts`."""
        ca, certificate, key = self.texts()
        return grpc.ssl_channel_credentials(
            root_certificates=ca or None,
            private_key=key or None,
            certificate_chain=certificate or None,
        )


def check_token(token: object, where: str = "token") -> str:
    """Return the token without surrounding white space, such as a line end. Empty: no token."""
    if isinstance(token, str) and TOKEN.fullmatch(stripped := token.strip()):
        return stripped
    raise InputError(
        f"{where}: expected at most {TOKEN_CHARS_MAX} printable ASCII characters without spaces"
    )


def read_token(path: str | Path) -> str:
    """Read the first token of a file, which may have several, one per line."""
    text = _bytes_of("token", path).decode("latin-1")
    token = check_token(text.strip().partition("\n")[0], f"token: {path}")
    if not token:
        raise InputError(f"token: {path}: expected a token, got an empty file")
    return token


def with_token(method: Callable[..., Any], token: str) -> Callable[..., Any]:
    """Add the token, unless it is empty, to every call of a channel's method.

    The token is a header, because connections without TLS refuse gRPC's call credentials.
    """
    if not token:
        return method
    return functools.partial(method, metadata=(("authorization", f"Bearer {token}"),))


def open_channel(address: str, tls: Tls | None, kind: Any, options: Any = CHANNEL_OPTIONS) -> Any:
    """Make a channel. It sends nothing before the first call.

    ``kind`` is ``grpc``, or ``grpc.aio`` for the running event loop. Raises InputError for a file
    that cannot be read.
    """
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
        raise InputError(f"tls: {path}: expected PEM, got a file without a line -----BEGIN")
    return text


def _bytes_of(what: str, path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{what}: {path}: cannot be read: {error.strerror}") from error
