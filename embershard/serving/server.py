"""The server: it loads models, listens on a port, and stops in order."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from embershard.errors import ConfigError, NotFoundError
from embershard.memory_limit import memory_limit
from embershard.serving._native import fbgemm_folder, load_extension
from embershard.serving.metric import Metrics, from_native, load_failures
from embershard.serving.options import ServerOptions, native_keywords
from embershard.serving.reports import IndexEntry, LoadCost, LoadEvent, Recorded, SlowRequest
from embershard.serving.repository import DenseProgram, ServedPackage, check_models, models_in
from embershard.serving.security import check_security, warn_if_exposed
from embershard.serving.traffic_split import parse_weights

LOG = logging.getLogger(__name__)


class Server:
    """Serves versions of models over gRPC. Requests are handled only in C++.

    ::

        with Server("repository", options=ServerOptions(port=0)) as server:
            client = Client(server.address)
    """

    def __init__(
        self,
        repository: str | Path,
        *,
        model: str | Sequence[str] = (),
        version: int | str = "",
        options: ServerOptions | None = None,
        on_event: Callable[[LoadEvent], None] | None = None,
    ) -> None:
        """Load and check packages, run their samples, and listen.

        The default version of a model and all its labelled versions are loaded.

        Args:
            repository: folder of ``<model>/<version>/``.
            model: name of one model, or several names. Empty: all models of the repository.
            version: the default version of a model: a number, a label, or ``latest``, the highest
                number. Empty: the version labelled ``stable``. If there is none, the highest
                version that is neither ``canary`` nor ``shadow``.
            options: None means the default options.
            on_event: called when a version is loaded, failed to load, is unloaded, or becomes the
                default. The loading thread calls it and waits for it.

        Raises:
            NotFoundError: a model, version, label or plan does not exist, or a weight is for a
                model that is not in the repository.
            PackageError: a package is damaged, is not signed by a trusted key, lies in folders
                with other names than in its manifest, or its samples yield other scores. Also
                raised if labels cannot be read.
            PlanError: the plan is for devices that this server does not have.
            DeadlineError: loading a default version made no progress for
                ``load_timeout_seconds``.
            OverloadedError: the models need more than the memory budget.
            UnavailableError: the server cannot listen on the address.
            ConfigError: the file to record into exists or lies in a model's folder, its folder
                does not exist, or several models would be recorded; a certificate, key or token
                cannot be used; a token would cross a network unencrypted; or model control would
                be open to anyone.
            RequestError: ``version`` is malformed.
        """
        self._options = options or ServerOptions()
        _check_record(self._options.record, Path(repository))
        check_security(self._options, report=LOG.error)
        warn_if_exposed(self._options.host, report=LOG.warning)
        self._repository = Path(repository)
        models = [model] if isinstance(model, str) and model else list(model)
        served = check_models(self._repository, models)
        _check_weighted(self._options.model_weights, self._repository)
        _check_recorded(self._options.record, served)
        self._load_failures = Counter[str]()  # Only the loader's thread adds to it.
        budget = self._options.memory_budget or memory_limit() * 8 // 10
        self._native = load_extension().Server(
            repository=str(self._repository),
            models=models,
            version=str(version or ""),
            fbgemm_folder=fbgemm_folder(),
            load_report=_make_load_report(on_event, self._load_failures),
            connections_report=LOG.warning,
            record_report=LOG.error,
            security_report=LOG.error,
            **native_keywords(replace(self._options, memory_budget=budget)),
        )
        self._state: Literal["serving", "draining", "stopped"] = "serving"

    @property
    def packages(self) -> list[ServedPackage]:
        """The served packages by model and version."""
        return [
            ServedPackage(
                model=version["model"],
                version=version["version"],
                folder=self._repository / version["model"] / str(version["version"]),
                labels=tuple(version["labels"]),
                is_default=version["is_default"],
                plan=self._options.plan or version["default_plan"],
                program=DenseProgram(**version["program"]),
            )
            for version in self._native.served()
        ]

    @property
    def address(self) -> str:
        """``host:port`` on which the server listens, with an IPv6 host in brackets."""
        host = self._options.host
        bare_ipv6 = ":" in host and not host.startswith("[")
        return f"{f'[{host}]' if bare_ipv6 else host}:{self._native.port}"

    @property
    def state(self) -> Literal["serving", "failed", "draining", "stopped"]:
        """State of the server.

        ``failed`` means that the process should be restarted: so many batches do not end that no
        further worker can be replaced, or a GPU is lost. Versions that are still served answer.
        ``draining`` means that `stop` is running.
        """
        return "failed" if self._state == "serving" and self._native.exhausted else self._state

    @property
    def device_lost(self) -> bool:
        """True if a GPU of a plan will not work again in this process."""
        return bool(self._native.device_lost)

    def metrics(self) -> Metrics:
        """The metrics counted since the start, which docs/metrics.md describes."""
        counted = from_native(self._native.metrics())
        return Metrics([*counted, load_failures(self._load_failures.total())])

    def answered(self) -> int:
        """Number of requests answered with OK since the start, including by unloaded versions."""
        return int(self._native.answered())

    def load(self, model: str, version: int = 0, *, replace: bool = False) -> LoadCost:
        """Load a version while others are served, and wait until it is served too.

        The version is read, checked completely and run on its samples. Then it is served, in one
        atomic step. Data that loaded versions share is not read again. Requests are answered
        meanwhile.

        Args:
            model: name of the model.
            version: the version to serve in addition to the others. 0 means the versions that the
                server's rule and the labels currently select.
            replace: unload the served versions of the model first, if memory does not hold both.
                The model is not served meanwhile.

        Raises:
            NotFoundError: the repository has no such model or version.
            RequestError: ``replace`` would unload no version for this one.
            PackageError, PlanError: see the constructor. The served versions stay served.
            DeadlineError: loading made no progress for ``load_timeout_seconds``.
            OverloadedError: the version does not fit the memory budget, too many loads are queued,
                or two loads hang.
            UnavailableError: the server is shutting down.
        """
        cost: LoadCost = self._native.load(model, version, replace)
        return cost

    def unload(self, model: str, version: int = 0) -> LoadCost:
        """Stop serving a version, or the whole model with version 0. Accepted requests are still
        answered.

        Raises:
            NotFoundError: the version or model is not served.
            RequestError: the version has a label or is the default.
        """
        cost: LoadCost = self._native.unload(model, version)
        return cost

    def refresh(self) -> LoadCost:
        """Read the repository and the labels again. Load and unload versions accordingly.

        Raises:
            EmbershardError: the first version that could not be loaded failed with it. See `load`.
        """
        cost: LoadCost = self._native.refresh()
        return cost

    def index(self) -> list[IndexEntry]:
        """All versions that are in the repository or served, with their states."""
        return list(self._native.index())

    def wait_slow(self, timeout_seconds: float) -> list[SlowRequest]:
        """Remove and return the queued slow requests, which took at least ``slow_request_ms``.

        Args:
            timeout_seconds: how long to wait if none is queued. A stopped server does not wait.
        """
        return list(self._native.wait_slow(timeout_seconds))

    def recording(self) -> Recorded:
        """Progress of the recording to `ServerOptions.record`. All zero without a recording."""
        recorded: Recorded = self._native.recording()
        return recorded

    def stop(self) -> bool:
        """Refuse new requests, answer the accepted ones and close the port. Safe to repeat.

        Returns:
            True if everything has stopped. False if a batch had not ended a second after the drain
            timeout, or a load had not ended. Their threads and memory then remain in the process.
        """
        if self._state == "serving":
            self._state = "draining"
        stopped: bool = self._native.stop(self._options.drain_timeout_seconds)
        self._state = "stopped"
        return stopped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _make_load_report(
    on_event: Callable[[LoadEvent], None] | None, failures: Counter[str]
) -> Callable[[str, str, int, float, str], None]:
    """Make the function that the extension keeps. If it referred to the server, that would never be
    freed."""

    def report(what: str, model: str, version: int, seconds: float, message: str) -> None:
        if what == "load_failed":
            failures[model] += 1
        if on_event is None:
            return
        event = LoadEvent(what=what, model=model, version=version, seconds=seconds, message=message)
        try:
            on_event(event)
        except Exception:  # An error in the caller's function must not stop the loader.
            LOG.exception("on_event raised")

    return report


def _check_weighted(weights: str, repository: Path) -> None:
    """Refuse a weight for a model that is not in the repository, such as a mistyped name."""
    models = models_in(repository)
    for name in parse_weights(weights):
        if name not in models:
            known = ", ".join(models)
            raise NotFoundError(f"model_weights: {repository}: no model {name!r}; models: {known}")


def _check_record(path: str | None, repository: Path) -> None:
    """Refuse files that the extension would refuse only after the tables are loaded."""
    if path is None:
        return
    if Path(path).exists():
        raise ConfigError(f"record: {path} exists: give a new file")
    if not Path(path).parent.is_dir():
        raise ConfigError(f"record: expected a file in a folder that exists, got {path}")
    if repository.resolve() in Path(path).resolve().parent.parents:
        raise ConfigError(f"record: expected a file outside the models of {repository}, got {path}")


def _check_recorded(path: str | None, models: Sequence[str]) -> None:
    if path is not None and len(models) > 1:
        raise ConfigError(
            "record: a recording (--record) is of one model: expected one (--model NAME), "
            f"got {len(models)}: {', '.join(models)}"
        )
