"""Checks of the security options. C++ reads the files of certificates and tokens."""

import ipaddress
import socket
from collections.abc import Callable

from embershard.errors import ConfigError
from embershard.serving._native import load_extension
from embershard.serving.option import native_options
from embershard.serving.options import ServerOptions

Report = Callable[[str], None]


def check_security(options: ServerOptions, *, report: Report) -> None:
    """Refuse options that the extension would refuse only after the tables are loaded.

    ``report`` receives a sentence, on any thread, if a file changed and cannot be used.
    """
    has_token, has_tls = options.token_file is not None, options.tls_certificate is not None
    plain = has_token and not has_tls and not options.token_without_tls
    if plain and not _is_loopback(options.host):
        raise ConfigError(
            f"token_file: {options.host} is not a loopback address, and without TLS the token "
            "crosses the network unencrypted; set tls_certificate and tls_key, or "
            "token_without_tls if something else does TLS"
        )
    guarded = has_token or options.tls_client_ca is not None
    if options.model_control and not guarded and not _is_loopback(options.host):
        raise ConfigError(
            f"model_control: {options.host} is not a loopback address, and anyone who reaches it "
            "could unload models; set token_file or tls_client_ca"
        )
    problem = ""
    if options.trusted_key is not None:
        problem = load_extension().check_trusted_key(options.trusted_key)
    if not problem and (has_token or has_tls):
        native = native_options(options)
        names = ("tls_certificate", "tls_key", "tls_client_ca", "token_file")
        problem = load_extension().check_security(
            **{name: native[name] for name in names}, security_report=report
        )
    if problem:
        raise ConfigError(problem)


def warn_if_exposed(host: str, *, report: Report) -> None:
    """Warn of attacks that gRPC 1.51 does not limit, unless only this machine can connect."""
    if not _is_loopback(host):
        report(
            f"host: {host} is not a loopback address, and gRPC does not limit the memory that "
            "clients without a token take; put a proxy with limits in front, see docs/security.md"
        )


def _is_loopback(host: str) -> bool:
    """True if all addresses of the host are loopback. False if its name has no address."""
    try:
        entries = socket.getaddrinfo(host.strip("[]") or None, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in entries)
