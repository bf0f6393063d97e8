"""Fetches the selected versions of models, then their labels."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embershard.errors import ConfigError, EmbershardError, NotFoundError, PackageError
from embershard.fetch.fetch_version import Fetched, FetchProgress, fetch_version
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
from embershard.package.names import NAME_PATTERN, PATTERN_WORDS, version_of

DEFAULT_LABEL: Final = "stable"

Choice = tuple[tuple[int, ...], dict[str, int]]
"""Sorted versions to fetch, and the followed labels with their versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The versions to fetch. The values are checked when it is built."""

    model: str = ""

    all_models: bool = False

    version: int = 0
    """Version to fetch regardless of labels. 0: versions are selected by labels."""

    labels: tuple[str, ...] = ()
    """Labels to follow. Empty: stable if the model has labels, else the highest version."""

    def __post_init__(self) -> None:
        if self.all_models and self.model:
            raise ConfigError(f"model: expected none with all models, got {self.model!r}")
        if self.model and not re.fullmatch(NAME_PATTERN, self.model):
            raise ConfigError(f"model: expected {PATTERN_WORDS[NAME_PATTERN]}, got {self.model!r}")
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
    model: str

    fetched: tuple[Fetched, ...]
    """The fetched versions, sorted, at least one."""

    labels: Mapping[str, int]
    """The followed labels with their versions. 0 if the local label was removed."""

    labels_before: Mapping[str, int]
    """All local labels before the fetch."""

    is_highest: bool
    """True if the highest version was selected, because the model has no labels on the remote."""

    @property
    def versions(self) -> tuple[int, ...]:
        return tuple(fetched.version for fetched in self.fetched)


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
    """Fetch one version of a model into a local repository.

    The version appears complete and verified, or not at all. An interrupted fetch leaves its
    downloads in a folder next to the version, and the next fetch continues from there. The label is
    written last.

    Args:
        url: URL of a repository, see `Source`.
        repository: folder of models, made if it is missing.
        model: name of the model. Empty: the only model of the remote.
        version: number of the version. 0: by label.
        label: label of the version. Empty: stable if the model has labels on the remote, else the
            highest version.
        trusted_key: a PEM file of public keys (Ed25519), one of which must have signed the package.
            The signature is fetched too. None: no signature is needed. Labels are not signed.
        stall_seconds: longest time without a byte, see `Source`.
        pause: sleeps for a number of seconds before another attempt.

    Returns:
        The fetched version. If it existed already, all its files were verified, and it was replaced
        only if it was damaged.

    Raises:
        ConfigError: the URL is malformed, a Python package for it is missing, or the keys cannot be
            read.
        NotFoundError: there is no such model, label or version, or one of its files is missing.
        UnavailableError: all attempts failed.
        PackageError: the remote package is damaged or not signed by a trusted key.
        InputError: there is another local package with this number, another fetch of the version is
            running, or the disk is full.
    """
    selection = Selection(model=model, version=version, labels=(label,) if label else ())
    (fetched,) = fetch_models(
        url,
        repository,
        selection,
        trusted_key=trusted_key,
        stall_seconds=stall_seconds,
        progress=progress,
        pause=pause,
    )
    return fetched.fetched[0]


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
    """Fetch the selected versions of models, and their labels.

    If a model fails, the others are still fetched. Then the first error is raised, with the
    messages of all. See `fetch_package` for arguments and errors.
    """
    source = Source(url, stall_seconds=stall_seconds, pause=pause)
    fetched, errors = [], []
    for model in choose_models(source, selection):
        try:
            fetched.append(
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
    return fetched


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
    """Fetch one model. Local labels change atomically, after all their versions are fetched.

    ``local`` remembers files that earlier fetches have verified. ``choice`` is the result of
    `choose_versions`; None calls it here. Errors are those of `fetch_package`; labels then stay.
    """
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
    """Sorted names of the selected models. Folders without versions are not models.

    Raises NotFoundError if there is no model, or if there are several and none is selected.
    """
    if selection.model:
        return [selection.model]
    folders = [name for name in source.folders("") if re.fullmatch(NAME_PATTERN, name)]
    models = [name for name in folders if _versions(source, name)]
    if len(models) != 1 and not (models and selection.all_models):
        expected = "models" if selection.all_models else "one model, or a name (--model)"
        received = ", ".join(models) or "none"
        raise NotFoundError(f"{source.url}: expected {expected}, got {received}")
    return models


def choose_versions(source: Source, selection: Selection, model: str) -> Choice:
    """The sorted versions of a model to fetch, at least one, and the followed labels.

    A followed label has version 0 if no remote version has it. No labels are followed if the
    selection has a version, or if the highest version of a model without labels is selected. Only
    the latter lists the remote folder. A selected version is not looked up. Raises NotFoundError if
    ``stable`` is followed but not set, if no followed label is set, or if a model without labels
    has no version.
    """
    if selection.version:
        return (selection.version,), {}
    remote = _labels(source, model)
    if not remote and not selection.labels:
        return (_highest(source, model),), {}
    followed = selection.labels or (DEFAULT_LABEL,)
    missing = [label for label in followed if label not in remote]
    if DEFAULT_LABEL in missing or len(missing) == len(followed):
        label = DEFAULT_LABEL if DEFAULT_LABEL in missing else " or ".join(followed)
        got = ", ".join(f"{label} {version}" for label, version in remote.items()) or "none"
        raise NotFoundError(
            f"{source.url}/{model}/{LABELS_FILE}: expected a version labelled {label}, got {got}; "
            "label one there, or name a --label or a --version"
        )
    labels = {label: remote.get(label, 0) for label in followed}
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
            "if the remote cannot list its folders, name one (--version)"
        )
    return max(versions)


def _versions(source: Source, model: str) -> list[int]:
    return list(filter(None, map(version_of, source.names(model))))
