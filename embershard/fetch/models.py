"""Fetching models: the versions that a selection says, then the labels that lead to them."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embershard.errors import ConfigError, EmbershardError, NotFoundError, PackageError
from embershard.fetch.fetching import Fetched, FetchProgress, fetch_version
from embershard.fetch.local import LocalVersions
from embershard.fetch.source import STALL_SECONDS, Source
from embershard.package.labels import (
    BYTES_MAX,
    LABELS,
    LABELS_FILE,
    parse_labels,
    read_labels,
    write_labels,
)
from embershard.package.names import NAME_PATTERN, version_of

DEFAULT_LABEL: Final = "stable"

Choice = tuple[tuple[int, ...], dict[str, int]]
"""Versions to fetch, in order, and the labels that are followed, with their versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which versions of which models to fetch. Valid once built."""

    model: str = ""
    """Empty: the only one there."""

    all_models: bool = False
    """Every model there."""

    version: int = 0
    """This one, whatever the labels say. 0: by label."""

    labels: tuple[str, ...] = ()
    """Labels to follow. Empty: stable where the model has labels, else the highest version."""

    def __post_init__(self) -> None:
        if self.all_models and self.model:
            raise ConfigError(f"model: expected none with all models, got {self.model!r}")
        if self.version < 0:
            raise ConfigError(f"version: expected a number from 1, got {self.version}")
        if self.version and (self.labels or self.all_models):
            what = "labels" if self.labels else "all models"
            raise ConfigError(f"version: expected none with {what}, got {self.version}")
        for label in self.labels:
            if label not in LABELS:
                raise ConfigError(f"label: expected {', '.join(LABELS)}, got {label!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedModel:
    """What became of a model."""

    model: str

    fetched: tuple[Fetched, ...]
    """Versions, in order; at least one."""

    labels: Mapping[str, int]
    """The labels that were followed, with their versions; 0: it was removed here."""

    labels_before: Mapping[str, int]
    """All labels here before."""

    is_highest: bool
    """Whether the highest version was taken because the model has no labels there."""

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple(each.version for each in self.fetched)


def fetch_package(
    url: str,
    repository: str | Path,
    *,
    model: str = "",
    version: int = 0,
    label: str = "",
    trusted_key: str | Path | None = None,
    stall_seconds: float = STALL_SECONDS,
    progress: FetchProgress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Fetched:
    """Fetch one version of a model into a repository of this machine.

    It appears there whole and verified, or not at all. What an interrupted fetch has downloaded
    stays in a folder beside it, and the next one goes on from there. A label is written after that.

    Args:
        url: of a repository, as fsspec takes it.
        repository: folder of models; made if missing.
        model: empty: the only one there.
        version: 0: by label.
        label: empty: stable where the model has labels there, else the highest version.
        trusted_key: a PEM file of public keys (Ed25519), one of which must have signed the package;
            its signature comes along. None: it needs none. Labels are not signed.
        stall_seconds: in which a byte must come; see `Source`.
        pause: waits so many seconds before another attempt.

    Returns:
        Where it lies. One that was there already is read whole, and left as it is unless it is
        damaged: it is replaced then.

    Raises:
        ConfigError: no URL, or one for which a Python package is missing; no such keys.
        NotFoundError: no such model, label or version, or one without one of its files.
        UnavailableError: no answer after some attempts.
        PackageError: the remote package is damaged, or not signed by a trusted key.
        InputError: another version of that number is here, another fetch of it is at work, or
            the disk is full.
    """
    selection = Selection(model=model, version=version, labels=(label,) if label else ())
    (found,) = fetch_models(
        url,
        repository,
        selection,
        trusted_key=trusted_key,
        stall_seconds=stall_seconds,
        progress=progress,
        pause=pause,
    )
    return found.fetched[0]


def fetch_models(
    url: str,
    repository: str | Path,
    selection: Selection,
    *,
    trusted_key: str | Path | None = None,
    stall_seconds: float = STALL_SECONDS,
    progress: FetchProgress | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> list[FetchedModel]:
    """Fetch the versions of models that a selection says, and their labels.

    A model that fails does not keep the others from being fetched.

    Args, Raises: as `fetch_package`; the first error, once all models were tried.
    """
    source = Source(url, stall_seconds=stall_seconds, pause=pause)
    found, errors = [], []
    for model in choose_models(source, selection):
        try:
            found.append(
                fetch_model(
                    source,
                    Path(repository),
                    selection,
                    model,
                    trusted_key=trusted_key,
                    progress=progress,
                )
            )
        except EmbershardError as error:
            errors.append(error)
    if errors:
        others = "".join(f"\n{type(error).__name__}: {error}" for error in errors[1:])
        raise type(errors[0])(f"{errors[0]}{others}") from errors[0]
    return found


def fetch_model(
    source: Source,
    repository: Path,
    selection: Selection,
    model: str,
    *,
    trusted_key: str | Path | None = None,
    progress: FetchProgress | None = None,
    local: LocalVersions | None = None,
    choice: Choice | None = None,
) -> FetchedModel:
    """Fetch one model. Labels here change at once, after every version that they lead to is here.
    ``local``: what earlier fetches have read here. None: nothing. ``choice``: by `choose_versions`;
    None: it is made here. Raises as `fetch_package`; labels are then as they were."""
    versions, labels = choice or choose_versions(source, selection, model)
    fetched = tuple(
        fetch_version(
            source,
            repository,
            model,
            version,
            trusted_key=trusted_key,
            progress=progress,
            local=local,
        )
        for version in versions
    )
    before = read_labels(repository / model)
    if labels:
        write_labels(repository, model, labels)
    return FetchedModel(
        model=model,
        fetched=fetched,
        labels=labels,
        labels_before=before,
        is_highest=not labels and not selection.version,
    )


def choose_models(source: Source, selection: Selection) -> list[str]:
    """Names of models, in order. Entries of the repository that hold no versions are no models.
    `NotFoundError`: none there, or several where one must be named."""
    if selection.model:
        return [selection.model]
    folders = [name for name in source.folders("") if re.fullmatch(NAME_PATTERN, name)]
    models = [name for name in folders if _versions(source, name)]
    if len(models) != 1 and not (models and selection.all_models):
        expected = "models" if selection.all_models else "one model, or a name (--model)"
        found = ", ".join(models) or "none"
        raise NotFoundError(f"{source.url}: expected {expected}, got {found}")
    return models


def choose_versions(source: Source, selection: Selection, model: str) -> Choice:
    """The versions of a model to fetch, in order, at least one; and the labels that are followed,
    0 where no version there has one: none are if the version is given or is the highest of a model
    without labels. The folder is listed only then. `NotFoundError`: no such label, or no
    version."""
    if selection.version:
        return (selection.version,), {}
    there = _labels(source, model)
    if not there and not selection.labels:
        return (_highest(source, model),), {}
    followed = selection.labels or (DEFAULT_LABEL,)
    missing = [label for label in followed if label not in there]
    if DEFAULT_LABEL in missing or len(missing) == len(followed):
        label = DEFAULT_LABEL if DEFAULT_LABEL in missing else " or ".join(followed)
        got = ", ".join(f"{label} {version}" for label, version in there.items()) or "none"
        raise NotFoundError(
            f"{source.url}/{model}/{LABELS_FILE}: expected a version labelled {label}, got {got}; "
            "label one there, or name a --label or a --version"
        )
    labels = {label: there.get(label, 0) for label in followed}
    return tuple(sorted({*labels.values()} - {0})), labels


def _labels(source: Source, model: str) -> dict[str, int]:
    try:
        data = source.read(f"{model}/{LABELS_FILE}", bytes_max=BYTES_MAX)
    except NotFoundError:
        return {}
    try:
        if len(data) > BYTES_MAX:
            raise PackageError(f"{LABELS_FILE}: bytes: expected at most {BYTES_MAX}, got more")
        return parse_labels(data)
    except PackageError as error:
        raise PackageError(f"{source.url}/{model}/{error}") from None


def _highest(source: Source, model: str) -> int:
    versions = _versions(source, model)
    if not versions:
        raise NotFoundError(
            f"{source.url}/{model}: expected versions, folders named by numbers, found none; "
            "where the remote cannot list its folders, name one (--version)"
        )
    return max(versions)


def _versions(source: Source, model: str) -> list[int]:
    return list(filter(None, map(version_of, source.names(model))))
