"""Which versions of which models to fetch: those with a label, the highest, or one by number."""

import re
from dataclasses import dataclass
from typing import Final

from embershard.errors import ConfigError, NotFoundError, PackageError
from embershard.fetch.source import Source
from embershard.package.labels import BYTES_MAX, LABELS, LABELS_FILE, parse_labels
from embershard.package.names import NAME_PATTERN, version_of

DEFAULT_LABEL: Final = "stable"


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


def choose_versions(
    source: Source, selection: Selection, model: str
) -> tuple[tuple[int, ...], dict[str, int]]:
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
