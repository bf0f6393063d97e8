"""Follows a remote repository: fetches new versions and moved labels, and makes a server load them.

::

    remote labels.json, versions         local repository              server
    ───────── fetch_model ──────────▶  versions, then labels  ── refresh ──▶  loads, swaps
                                       old versions go        ◀── index ────  what is in use
"""

import shutil
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from embershard.errors import ConfigError, EmbershardError, UnavailableError
from embershard.fetch.fetch_version import UNFINISHED, remove_unfinished
from embershard.fetch.local import LocalVersions
from embershard.fetch.models import (
    DEFAULT_LABEL,
    FetchedModel,
    Selection,
    choose_models,
    choose_versions,
    fetch_model,
)
from embershard.fetch.source import Source
from embershard.fetch.watch_status import FAILED_EVENTS, WatchStatus
from embershard.package.files import locked_folder
from embershard.package.labels import read_labels
from embershard.package.names import version_of
from embershard.package.signature import signature_file

FAILURES: Final = (EmbershardError, OSError, ValueError)
"""Errors of the remote, the disk or the server. ValueError comes from invalid names."""

INTERVAL_MAX: Final = 1_000_000
"""Eleven days, in seconds."""

Order = Callable[[str], Mapping[str, Any]]
"""Sends a server the order ``refresh`` or ``index`` and returns its answer."""

Write = Callable[[str, Mapping[str, object]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Options of a watch. Their values are checked when they are built."""

    selection: Selection

    interval_seconds: float = 30.0
    """Time between the starts of two polls. A poll retries whatever failed in the last one."""

    trusted_key: str | Path | None = None

    keep: int | None = None
    """Number of versions of a model to keep, in addition to those that are labelled, served or
    followed. Versions that were stable last are kept first, then the highest ones. Others are
    removed. None keeps all versions. A number needs a server, which reports what it uses."""

    def __post_init__(self) -> None:
        if not 0 < self.interval_seconds <= INTERVAL_MAX:
            expected = f"seconds above 0, at most {INTERVAL_MAX:,}"
            raise ConfigError(f"watch: expected {expected}, got {self.interval_seconds:g}")
        if self.selection.version:
            raise ConfigError("version: expected none with watch, which follows labels")
        if self.keep is not None and self.keep < 0:
            raise ConfigError(f"keep: expected a number from 0, got {self.keep}")


class Watch:
    """Polls a repository. Not thread-safe.

    A failed poll does not affect served versions, and the next poll retries. Several processes may
    watch the same repository, with the same result as a single one.
    """

    def __init__(
        self,
        source: Source,
        repository: Path,
        options: WatchOptions,
        *,
        order: Order | None,
        write: Write,
    ) -> None:
        """
        Args:
            source: the remote repository.
            repository: the local repository.
            options: what to follow.
            order: sends orders to the server. None if there is no server.
            write: writes events to the log.

        Raises:
            ConfigError: ``options.keep`` is set without a server.
        """
        if options.keep is not None and order is None:
            raise ConfigError("keep: expected a server's control socket, which tells what it uses")
        self.interval_seconds = options.interval_seconds
        self.status = WatchStatus(interval_seconds=options.interval_seconds)
        self._source, self._repository, self._options = source, repository, options
        self._order, self._log = order, write
        self._local = LocalVersions()
        self._seen: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {}
        # An earlier watch may have ended between a change and its refresh.
        self._is_refresh_due = order is not None

    def poll(self) -> None:
        """Fetch new versions, make the server load them, and remove old ones."""
        self.status.begin_poll()
        fetched = self._fetch()
        if self._order is not None:
            index = self._index(self._order)
            self.status.serve(index)
            if index is not None:
                self._remove(fetched, index)
        self.status.end_poll()

    def _write(self, event: str, fields: Mapping[str, object]) -> None:
        if event in FAILED_EVENTS:
            self.status.fail(event)
        self._log(event, fields)

    def _fetch(self) -> list[FetchedModel]:
        """Return the models that did not fail."""
        up_to_date: list[FetchedModel] = []
        try:
            models = choose_models(self._source, self._options.selection)
        except FAILURES as error:
            self._write("fetch_failed", _error_fields(error))
            return up_to_date
        self.status.keep(models)
        for model in models:
            try:
                choice = choose_versions(self._source, self._options.selection, model)
                self.status.want(_wanted(*choice), model)
                fetched = fetch_model(
                    self._source,
                    self._repository,
                    self._options.selection,
                    model,
                    trusted_key=self._options.trusted_key,
                    progress=self.status.beat,
                    local=self._local,
                    choice=choice,
                )
            except FAILURES as error:
                self._write("fetch_failed", {"model": model, **_error_fields(error)})
            else:
                self._report(fetched)
                up_to_date.append(fetched)
        return up_to_date

    def _report(self, model: FetchedModel) -> None:
        """Log the changes of a model, which another watch of the repository may have made."""
        for fetched in model.fetched:
            if fetched.is_new or fetched.damage:
                local = fetched.reused_bytes + fetched.resumed_bytes
                fields = {"model": fetched.model, "version": fetched.version}
                sizes = {"fetched_bytes": fetched.fetched_bytes, "local_bytes": local}
                damage = {"message": fetched.damage} if fetched.damage else {}
                self._write("repaired" if damage else "fetched", {**fields, **sizes, **damage})
            if fetched.damage:  # The server may have failed to load it.
                self._is_refresh_due = self._order is not None
        for label, version in model.labels.items():
            before = model.labels_before.get(label, 0)
            if version != before:
                moved = {"model": model.model, "label": label, "version": version}
                self._write("label_moved", {**moved, "version_before": before})
                if before and label == DEFAULT_LABEL and self._options.keep is not None:
                    with suppress(OSError):  # The file only affects which versions are kept.
                        _stable_file(self._repository / model.model, before).touch()
        now = model.versions, {**model.labels_before, **model.labels}
        if self._seen.get(model.model) != now:
            self._seen[model.model] = now
            self._is_refresh_due = self._order is not None

    def _index(self, order: Order) -> list[Mapping[str, Any]] | None:
        """The server's index, after a refresh if one is due. None if the server does not answer."""
        if self._is_refresh_due and not self._refresh(order):
            return None
        try:
            return list(order("index")["index"])
        except FAILURES as error:
            self._write("index_failed", _error_fields(error))
        return None

    def _refresh(self, order: Order) -> bool:
        """Make the server follow the repository. Returns False if no server answers."""
        try:
            answer = order("refresh")
        except FAILURES as error:
            self._write("refresh_failed", _error_fields(error))
            return not isinstance(error, UnavailableError)
        self._is_refresh_due = False
        served = [f"{entry['model']} {entry['version']}" for entry in _default(answer)]
        fields = {"seconds": round(answer["seconds"], 3), "serving": ", ".join(served)}
        self._write("refreshed", fields)
        return True

    def _remove(self, models: list[FetchedModel], index: list[Mapping[str, Any]]) -> None:
        keep = self._options.keep
        if keep is None:
            return
        for fetched in models:
            model, folder = fetched.model, self._repository / fetched.model
            used = {entry["version"] for entry in index if _is_used(entry, model)}
            used |= {*fetched.versions}
            try:
                if removable_versions(folder, keep=keep, used=used):
                    for version in remove_versions(folder, keep=keep, used=used):
                        self._write("removed", {"model": model, "version": version})
            except FAILURES as error:
                self._write("remove_failed", {"model": model, **_error_fields(error)})


def sleep_in_steps(seconds: float) -> None:
    """Sleep in steps of at most a second, because Python handles a signal that arrives just before
    a step only after it."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1))


def follow(
    watch: Watch,
    *,
    pause: Callable[[float], None] = sleep_in_steps,
    clock: Callable[[], float] = time.monotonic,
) -> NoReturn:
    """Poll until an exception, such as that of Ctrl-C.

    Args:
        watch: the watch to poll.
        pause: sleeps until the next poll, for at least a tenth of the interval if polls take long.
        clock: a monotonic clock, in seconds.
    """
    while True:
        start = clock()
        watch.poll()
        seconds = watch.interval_seconds
        pause(max(seconds - (clock() - start), seconds / 10))


def _error_fields(error: Exception) -> dict[str, object]:
    return {"error": type(error).__name__, "message": str(error)}


def _default(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [entry for entry in answer["index"] if entry["is_default"]]


def _is_used(entry: Mapping[str, Any], model: str) -> bool:
    return entry["model"] == model and entry["state"] in ("ready", "loading")


def _wanted(versions: tuple[int, ...], labels: Mapping[str, int]) -> dict[str, int]:
    """Versions of the remote by label. Empty label: the highest, if no label is followed."""
    return {label: version for label, version in labels.items() if version} or {"": versions[0]}


REMOVED: Final = ".removing-"
"""Prefix of folders that servers ignore, because they are being removed."""

STABLE: Final = ".stable-"
"""Prefix of empty files. The mtime of ``.stable-<version>`` is when it lost the label stable."""


def _stable_file(folder: Path, version: int) -> Path:
    return folder / f"{STABLE}{version}"


def removable_versions(folder: Path, *, keep: int, used: Collection[int]) -> list[int]:
    """Sorted versions of a model that may be removed.

    Versions in ``used`` and labelled versions stay. Of the others ``keep`` versions stay: those
    that were stable last, then the highest.
    """
    pinned = {*used, *read_labels(folder).values()}
    versions = [version_of(path.name) for path in folder.iterdir() if _is_folder(path)]
    others = [version for version in versions if version and version not in pinned]
    others.sort(key=lambda version: (_stable_until(folder, version), version), reverse=True)
    return sorted(others[keep:])


def _stable_until(folder: Path, version: int) -> int:
    """Nanoseconds since 1970. 0 if the version never had the label."""
    try:
        return _stable_file(folder, version).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def remove_versions(folder: Path, *, keep: int, used: Collection[int]) -> list[int]:
    """Remove `removable_versions` and the remains of interrupted fetches. Returns the versions.

    Each version disappears atomically for servers that read the repository. No label is written
    meanwhile.
    """
    with locked_folder(folder):
        _remove_leftovers(folder)
        versions = removable_versions(folder, keep=keep, used=used)
        for version in versions:
            package = folder / str(version)
            package.rename(folder / f"{REMOVED}{version}")
            signature_file(package).unlink(missing_ok=True)
            _stable_file(folder, version).unlink(missing_ok=True)
    _remove_leftovers(folder)
    return versions


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()  # The target of a link is not ours.


def _remove_leftovers(folder: Path) -> None:
    for path in filter(_is_folder, folder.iterdir()):
        if path.name.startswith(REMOVED):
            shutil.rmtree(path)
        elif path.name.startswith(UNFINISHED):
            remove_unfinished(path)
