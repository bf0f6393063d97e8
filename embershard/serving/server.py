"""One serving process: models, a port, and an orderly end."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

from embershard.errors import ConfigError, NotFoundError
from embershard.memory_limit import memory_limit
from embershard.serving._native import fbgemm_folder, load_extension
from embershard.serving.loading import IndexEntry, LoadCost, LoadEvent, Recorded, SlowRequest
from embershard.serving.metric import Metrics, from_native, load_failures
from embershard.serving.options import ServerOptions, native_keywords
from embershard.serving.repository import DenseProgram, ServedPackage, check_models, models_in
from embershard.serving.security import check_security, warn_if_exposed
from embershard.serving.traffic_split import parse_weights

LOG = logging.getLogger(__name__)


class Server:
    """Serves versions of models over gRPC. All requests stay in C++.

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
        """Load and check packages, run their samples, listen.

        Besides the default version, the labelled ones are loaded.

        Args:
            repository: folder of ``<model>/<version>/``.
            model: one or several. None: all that are there.
            version: the default version of a model: a number, a label, or
                ``latest``, the highest. Empty: the one labelled ``stable``, else the
                highest that is neither ``canary`` nor ``shadow``.
            options: None: the defaults.
            on_event: told of every version that is loaded, not loaded, unloaded, or from now on
                the default; by the thread that loads, which waits for it.

        Raises:
            NotFoundError: no such model, version, label or plan; a weight of a model that is not
                in the repository.
            PackageError: a package is damaged, is not signed by a trusted key, lies in folders of
                another name than its manifest says, or its samples give other scores; or labels
                that cannot be read.
            PlanError: the plan is for devices that are not served here.
            DeadlineError: no progress for ``load_timeout_seconds`` while a default version loads.
            OverloadedError: more than the memory budget.
            UnavailableError: the address cannot be listened on.
            ConfigError: the file to record into exists, is a model's, or its folder does not exist,
                or more than one model would be recorded; a certificate, key or token that cannot
                be used; a token that would cross a network unencrypted; model
                control open to anyone.
            RequestError: a version of another form.
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
        self._load_failures = Counter[str]()  # One thread, that of the loader, adds to it.
        budget = self._options.memory_budget or memory_limit() * 8 // 10
        self._native = load_extension().Server(
            repository=str(self._repository),
            models=models,
            version=str(version or ""),
            fbgemm_folder=fbgemm_folder(),
            load_report=_reporter(on_event, self._load_failures),
            connections_report=LOG.warning,
            record_report=LOG.error,
            security_report=LOG.error,
            **native_keywords(replace(self._options, memory_budget=budget)),
        )
        self._state: Literal["serving", "draining", "stopped"] = "serving"

    @property
    def packages(self) -> list[ServedPackage]:
        """What is served now, models and versions ascending."""
        return [
            ServedPackage(
                model=each["model"],
                version=each["version"],
                folder=self._repository / each["model"] / str(each["version"]),
                labels=tuple(each["labels"]),
                is_default=each["is_default"],
                plan=self._options.plan or each["default_plan"],
                program=DenseProgram(**each["program"]),
            )
            for each in self._native.served()
        ]

    @property
    def address(self) -> str:
        """``host:port`` as listened on; an IPv6 host stands in brackets."""
        host = self._options.host
        bare_ipv6 = ":" in host and not host.startswith("[")
        return f"{f'[{host}]' if bare_ipv6 else host}:{self._native.port}"

    @property
    def state(self) -> Literal["serving", "failed", "draining", "stopped"]:
        """``failed``: batches do not end, and as many workers as slots were replaced, or a GPU is
        lost; what is served is answered. ``draining``: `stop` is at work."""
        return "failed" if self._state == "serving" and self._native.exhausted else self._state

    @property
    def device_lost(self) -> bool:
        """True if a GPU of a plan will not work again in this process."""
        return bool(self._native.device_lost)

    def metrics(self) -> Metrics:
        """Everything counted since the start, as of now. docs/metrics.md describes each metric."""
        counted = from_native(self._native.metrics())
        return Metrics([*counted, load_failures(self._load_failures.total())])

    def answered(self) -> int:
        """Requests answered well since the start, by versions that were unloaded too."""
        return int(self._native.answered())

    def load(self, model: str, version: int = 0, *, replace: bool = False) -> LoadCost:
        """Load a version while others are served, and wait until it is. Requests do not notice.

        It is read and checked whole, run on its samples, and takes its place in one moment. What
        loaded versions have in common is not read again.

        Args:
            model: its name.
            version: 0: those that the rule of the server and the labels say now. Another one: it,
                besides.
            replace: what is served of the model goes first. For where the memory does not hold
                both; nothing of the model is served meanwhile.

        Raises:
            NotFoundError: no such model or version in the repository.
            RequestError: ``replace`` would unload no version for this one.
            PackageError, PlanError: as at the start. What was served is served on.
            DeadlineError: no progress for ``load_timeout_seconds``.
            OverloadedError: more than the memory budget, many loads wait, or two hang.
            UnavailableError: the server is shutting down.
        """
        cost: LoadCost = self._native.load(model, version, replace)
        return cost

    def unload(self, model: str, version: int = 0) -> LoadCost:
        """Serve a version no more, or, with version 0, a model. It ends with its last answer.

        Raises:
            NotFoundError: it is not served.
            RequestError: the version has a label, or is the default.
        """
        cost: LoadCost = self._native.unload(model, version)
        return cost

    def refresh(self) -> LoadCost:
        """Look at the repository and the labels again; load and let go accordingly.

        Raises:
            EmbershardError: as `load`, of the first version that could not be loaded.
        """
        cost: LoadCost = self._native.refresh()
        return cost

    def index(self) -> list[IndexEntry]:
        """All versions in the repository, and what has become of each."""
        return list(self._native.index())

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

    def stop(self) -> bool:
        """Refuse new requests, answer the accepted ones, close the port. Safe to repeat.

        Returns:
            Whether all of it has stopped. False: a batch had not ended a second after the drain
            timeout, or a load a second after the call. Its threads and memory are left to the
            process.
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


def _reporter(
    on_event: Callable[[LoadEvent], None] | None, failures: Counter[str]
) -> Callable[[str, str, int, float, str], None]:
    """What the extension calls. It knows no server: the extension keeps it, and a server that it
    knew would never be freed."""

    def report(what: str, model: str, version: int, seconds: float, message: str) -> None:
        if what == "load_failed":
            failures[model] += 1
        if on_event is None:
            return
        event = LoadEvent(what=what, model=model, version=version, seconds=seconds, message=message)
        try:
            on_event(event)
        except Exception:  # Whatever a caller's function raises: loading goes on.
            LOG.exception("on_event raised")

    return report


def _check_weighted(weights: str, repository: Path) -> None:
    """Refuse the weight of a model that is not in the repository: a mistyped name has no effect."""
    found = models_in(repository)
    for name in parse_weights(weights):
        if name not in found:
            known = ", ".join(found)
            raise NotFoundError(f"model_weights: {repository}: no model {name!r}; models: {known}")


def _check_record(path: str | None, repository: Path) -> None:
    """Refuse at once what would be refused after the tables are loaded."""
    if path is None:
        return
    if Path(path).exists():
        raise ConfigError(f"record: {path} exists: give a new file")
    if not Path(path).parent.is_dir():
        raise ConfigError(f"record: expected a file in a folder that exists, got {path}")
    if repository.resolve() in Path(path).resolve().parent.parents:
        raise ConfigError(f"record: expected a file beside the models of {repository}, got {path}")


def _check_recorded(path: str | None, models: Sequence[str]) -> None:
    """Likewise, of what is to be recorded."""
    if path is not None and len(models) > 1:
        raise ConfigError(
            "record: a recording (--record) is of one model: expected one (--model NAME), "
            f"got {len(models)}: {', '.join(models)}"
        )
