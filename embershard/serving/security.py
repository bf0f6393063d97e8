"""Who is let in, as far as Python has a say: the files are read in C++."""

import ipaddress
import socket
from collections.abc import Callable

from embershard.errors import ConfigError
from embershard.serving._native import load_extension
from embershard.serving.option import native_options
from embershard.serving.options import ServerOptions

Report = Callable[[str], None]


def check_security(options: ServerOptions, *, report: Report) -> None:
    """Refuse at once what would be refused after the tables are loaded. ``report`` gets a sentence
    when a file has changed and cannot be used, from any thread."""
    has_token, has_tls = options.token_file is not None, options.tls_certificate is not None
    plain = has_token and not has_tls and not options.token_without_tls
    if plain and not _is_loopback(options.host):
        raise ConfigError(
            f"token_file: {options.host} is no loopback address, and without TLS who listens on "
            "the network can take the token; give tls_certificate and tls_key, or "
            "token_without_tls where something else does TLS"
        )
    guarded = has_token or options.tls_client_ca is not None
    if options.model_control and not guarded and not _is_loopback(options.host):
        raise ConfigError(
            f"model_control: {options.host} is no loopback address, and anyone who reaches it "
            "could unload models; give token_file or tls_client_ca"
        )
    problem = ""
    if options.trusted_key is not None:
        problem = load_extension().check_trusted_key(options.trusted_key)
    if not problem and (has_token or has_tls):
        given = native_options(options)
        names = ("tls_certificate", "tls_key", "tls_client_ca", "token_file")
        problem = load_extension().check_security(
            **{name: given[name] for name in names}, security_report=report
        )
    if problem:
        raise ConfigError(problem)


def warn_if_exposed(host: str, *, report: Report) -> None:
    """Report attacks that gRPC 1.51 does not bound, unless only this machine can connect."""
    if not _is_loopback(host):
        report(
            f"host: {host} is no loopback address, and gRPC does not bound the memory that clients "
            "without a token take; put a proxy with limits in front, as docs/security.md describes"
        )


def _is_loopback(host: str) -> bool:
    """Whether every address that a name means is one. A name that means none is not."""
    try:
        found = socket.getaddrinfo(host.strip("[]") or None, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(entry[4][0]).is_loopback for entry in found)
