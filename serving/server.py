"""One serving process: a package, a port, and an orderly end."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from embershard.errors import ConfigError
from embershard.serving._native import fbgemm_folder, load_extension
from embershard.serving.options import SECONDS_OF_CONNECTIONS, ServerOptions
from embershard.serving.repository import ServedPackage, check_folder, find_package
from embershard.serving.security import check_security, security_keywords
from embershard.serving.snapshot import Recorded, SlowRequest, Snapshot

__all__ = ["Server"]

LOG = logging.getLogger(__name__)


class Server:
    """Serves one version of a model over gRPC. All requests stay in C++.

    ::

        with Server("repository", options=ServerOptions(port=0)) as server:
            client = Client(server.address)
    """

    def __init__(
        self,
        repository: str | Path,
        *,
        model: str = "",
        version: int = 0,
        options: ServerOptions | None = None,
    ) -> None:
        """Load and check the package, run its samples, listen.

        Args:
            repository: folder of ``<model>/<version>/``.
            model: empty: the only one there.
            version: 0: the highest one there.
            options: None: the defaults.

        Raises:
            NotFoundError: no such model, version or plan.
            PackageError: the package is damaged, lies in folders of another name than its manifest
                says, or its samples give other scores.
            PlanError: the plan is for devices that are not served here.
            UnavailableError: the address cannot be listened on.
            ConfigError: the file to record into exists, or its folder does not; a certificate, key
                or token that cannot be used; a token that would come without TLS from elsewhere.
        """
        self._options = options or ServerOptions()
        _check_record(self._options.record)
        check_security(self._options, report=LOG.error)
        self._package = find_package(Path(repository), model=model, version=version)
        check_folder(self._package)
        self._native = load_extension().Server(
            folder=str(self._package.folder),
            fbgemm_folder=str(fbgemm_folder()),
            plan=self._options.plan,
            dense_program=self._options.dense_program,
            resident=self._options.tables == "resident",
            threads=self._options.threads,
            sample_tolerance=self._options.sample_tolerance,
            max_request_examples=self._options.max_request_examples,
            max_request_ids=self._options.max_request_ids,
            max_batch_examples=self._options.max_batch_examples,
            max_batch_ids=self._options.max_batch_ids,
            merge_examples=self._options.merge_examples,
            max_queued_examples=self._options.max_queued_examples,
            max_queued_ids=self._options.max_queued_ids,
            max_queued_bytes=self._options.max_queued_bytes,
            max_inline_us=self._options.max_inline_us,
            host=self._options.host,
            port=self._options.port,
            default_timeout_ms=self._options.default_timeout_ms,
            max_message_bytes=self._options.max_message_bytes,
            stream_in_flight=self._options.stream_in_flight,
            max_connections=self._options.max_connections,
            connections_report=LOG.warning,
            max_connection_calls=self._options.max_connection_calls,
            **{name: getattr(self._options, name) for name in SECONDS_OF_CONNECTIONS},
            slow_request_ms=self._options.slow_request_ms,
            record_path=self._options.record,
            record_requests=self._options.record_requests,
            record_share=self._options.record_share,
            record_report=LOG.error,
            **security_keywords(self._options, report=LOG.error),
        )
        self._state: Literal["serving", "draining", "stopped"] = "serving"

    @property
    def package(self) -> ServedPackage:
        return self._package

    @property
    def address(self) -> str:
        """``host:port`` as listened on; an IPv6 host stands in brackets."""
        host = self._options.host
        bare_ipv6 = ":" in host and not host.startswith("[")
        return f"{f'[{host}]' if bare_ipv6 else host}:{self._native.port}"

    @property
    def state(self) -> Literal["serving", "draining", "stopped"]:
        """``draining``: `stop` is at work."""
        return self._state

    def snapshot(self) -> Snapshot:
        """Everything counted since the start, as of now. Requests do not notice."""
        snapshot: Snapshot = self._native.snapshot()
        return snapshot

    def wait_slow(self, timeout_seconds: float) -> list[SlowRequest]:
        """Take the requests that took at least ``slow_request_ms``, and that nobody took yet.

        Args:
            timeout_seconds: how long to wait for a first one. Once the server has stopped it does
                not wait.
        """
        return list(self._native.wait_slow(timeout_seconds))

    def recording(self) -> Recorded:
        """What is in the file of `ServerOptions.record`; all zero without one."""
        recorded: Recorded = self._native.recording()
        return recorded

    def stop(self) -> None:
        """Refuse new requests, answer the accepted ones, close the port. Safe to repeat."""
        if self._state == "serving":
            self._state = "draining"
        self._native.stop(self._options.drain_timeout_seconds)
        self._state = "stopped"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _check_record(path: str) -> None:
    """Refuse at once what would be refused after the tables are loaded.

    Raises:
        ConfigError: the file exists, or its folder does not.
    """
    if not path:
        return
    if Path(path).exists():
        raise ConfigError(f"record: {path} exists: give a new file")
    if not Path(path).parent.is_dir():
        raise ConfigError(f"record: expected a file in a folder that exists, got {path}")
