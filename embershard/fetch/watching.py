"""Following a repository: new versions and label moves are fetched, and a server loads them.

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
from embershard.fetch.fetching import UNFINISHED, remove_unfinished
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
from embershard.package.labels import read_labels
from embershard.package.names import version_of
from embershard.package.sealing import locked_folder
from embershard.package.signing import signature_file

FAILURES: Final = (EmbershardError, OSError, ValueError)
"""Of what the remote, the disk or the server gives; ValueError: a name that no file may have."""

INTERVAL_MAX: Final = 1_000_000
"""Seconds, eleven days."""

Order = Callable[[str], Mapping[str, Any]]
"""Sends a server the order ``refresh`` or ``index`` and returns its answer."""

Write = Callable[[str, Mapping[str, object]], None]
"""Writes an event with its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Valid once built."""

    selection: Selection

    interval_seconds: float = 30.0
    """From the start of a poll to that of the next one, which tries again what failed."""

    trusted_key: str | Path | None = None
    """As `fetch_package` has it."""

    keep: int | None = None
    """Versions of a model that stay besides those that are labelled, served or followed: those that
    were stable last, then the highest; others are removed. None: all stay. It needs a server to
    ask."""

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

    A poll that fails changes nothing that is served, and the next one tries again. Several watches
    of one repository, in several processes, leave it as one alone would.
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
            order: None: no server is told.

        Raises:
            ConfigError: versions are to be removed, and there is no server to ask.
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
        """Fetches what is new, has the server load it, and removes what is old."""
        self.status.begin_poll()
        found = self._fetch()
        if self._order is not None:
            index = self._index(self._order)
            self.status.serve(index)
            if index is not None:
                self._remove(found, index)
        self.status.end_poll()

    def _write(self, event: str, fields: Mapping[str, object]) -> None:
        if event in FAILED_EVENTS:
            self.status.fail(event)
        self._log(event, fields)

    def _fetch(self) -> list[FetchedModel]:
        """Models that are as the source has them."""
        found: list[FetchedModel] = []
        try:
            models = choose_models(self._source, self._options.selection)
        except FAILURES as error:
            self._write("fetch_failed", _said(error))
            return found
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
                self._write("fetch_failed", {"model": model, **_said(error)})
            else:
                self._report(fetched)
                found.append(fetched)
        return found

    def _report(self, found: FetchedModel) -> None:
        """Writes what has changed, and remembers that the server is to know.

        Another watch of the repository may have been the one that changed it.
        """
        for each in found.fetched:
            if each.is_new or each.damage:
                local = each.reused_bytes + each.resumed_bytes
                said = {"model": each.model, "version": each.version}
                sizes = {"fetched_bytes": each.fetched_bytes, "local_bytes": local}
                damage = {"message": each.damage} if each.damage else {}
                self._write("repaired" if damage else "fetched", {**said, **sizes, **damage})
            if each.damage:  # The server may have been unable to load it.
                self._is_refresh_due = self._order is not None
        for label, version in found.labels.items():
            before = found.labels_before.get(label, 0)
            if version != before:
                moved = {"model": found.model, "label": label, "version": version}
                self._write("label_moved", {**moved, "version_before": before})
                if before and label == DEFAULT_LABEL and self._options.keep is not None:
                    with suppress(OSError):  # It is only a preference.
                        _stable_file(self._repository / found.model, before).touch()
        now = found.versions, {**found.labels_before, **found.labels}
        if self._seen.get(found.model) != now:
            self._seen[found.model] = now
            self._is_refresh_due = self._order is not None

    def _index(self, order: Order) -> list[Mapping[str, Any]] | None:
        """The server's index after it has followed the repository; None if it does not answer."""
        if self._is_refresh_due and not self._refresh(order):
            return None
        try:
            return list(order("index")["index"])
        except FAILURES as error:
            self._write("index_failed", _said(error))
        return None

    def _refresh(self, order: Order) -> bool:
        """Has the server follow the repository. False: no server is there."""
        try:
            answer = order("refresh")
        except FAILURES as error:
            self._write("refresh_failed", _said(error))
            return not isinstance(error, UnavailableError)
        self._is_refresh_due = False
        served = [f"{each['model']} {each['version']}" for each in _default(answer)]
        said = {"seconds": round(answer["seconds"], 3), "serving": ", ".join(served)}
        self._write("refreshed", said)
        return True

    def _remove(self, found: list[FetchedModel], index: list[Mapping[str, Any]]) -> None:
        keep = self._options.keep
        if keep is None:
            return
        for fetched in found:
            model, folder = fetched.model, self._repository / fetched.model
            used = {entry["version"] for entry in index if _is_used(entry, model)}
            used |= {*fetched.versions}
            try:
                if removable_versions(folder, keep=keep, used=used):
                    for version in remove_versions(folder, keep=keep, used=used):
                        self._write("removed", {"model": model, "version": version})
            except FAILURES as error:
                self._write("remove_failed", {"model": model, **_said(error)})


def sleep_in_steps(seconds: float) -> None:
    """Sleeps at most a second at a time. Python runs a signal's handler between two steps if the
    signal came just before a step began."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 1))


def follow(
    watch: Watch,
    *,
    pause: Callable[[float], None] = sleep_in_steps,
    clock: Callable[[], float] = time.monotonic,
) -> NoReturn:
    """Polls until an exception ends it: Ctrl-C, or what a signal raises.

    Args:
        pause: waits so many seconds: a tenth of the interval at least, where polls take long.
        clock: seconds from some moment on.
    """
    while True:
        start = clock()
        watch.poll()
        seconds = watch.interval_seconds
        pause(max(seconds - (clock() - start), seconds / 10))


def _said(error: Exception) -> dict[str, object]:
    return {"error": type(error).__name__, "message": str(error)}


def _default(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in answer["index"] if each["is_default"]]


def _is_used(entry: Mapping[str, Any], model: str) -> bool:
    return entry["model"] == model and entry["state"] in ("ready", "loading")


def _wanted(versions: tuple[int, ...], labels: Mapping[str, int]) -> dict[str, int]:
    """By label, those that the remote has; the highest version under an empty label."""
    return {label: version for label, version in labels.items() if version} or {"": versions[0]}


REMOVED: Final = ".removing-"
"""How folders begin that servers do not look at any more."""

STABLE: Final = ".stable-"
"""Prefix of empty files. The mtime of ``.stable-<version>`` is when that version lost the label
stable."""


def _stable_file(folder: Path, version: int) -> Path:
    return folder / f"{STABLE}{version}"


def removable_versions(folder: Path, *, keep: int, used: Collection[int]) -> list[int]:
    """Versions of a model that may go, in order: all but those in ``used``, those with labels, and
    ``keep`` others: those that were stable last, then the highest."""
    stay = {*used, *read_labels(folder).values()}
    found = [version_of(each.name) for each in folder.iterdir() if _is_folder(each)]
    others = [version for version in found if version and version not in stay]
    others.sort(key=lambda version: (_stable_until(folder, version), version), reverse=True)
    return sorted(others[keep:])


def _stable_until(folder: Path, version: int) -> int:
    """Nanoseconds since 1970; 0: it was never stable here."""
    try:
        return _stable_file(folder, version).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def remove_versions(folder: Path, *, keep: int, used: Collection[int]) -> list[int]:
    """Removes `removable_versions` and what interrupted fetches have left, and returns them. A
    server that looks at the repository sees a version whole or not at all. No label is written
    meanwhile."""
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
    return path.is_dir() and not path.is_symlink()  # A link leads to somebody else's folder.


def _remove_leftovers(folder: Path) -> None:
    for each in filter(_is_folder, folder.iterdir()):
        if each.name.startswith(REMOVED):
            shutil.rmtree(each)
        elif each.name.startswith(UNFINISHED):
            remove_unfinished(each)
