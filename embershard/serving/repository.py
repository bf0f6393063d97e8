"""Finds the models of a repository, ``<repository>/<model>/<version>/``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embershard.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProgram:
    """The form in which a package's dense program runs."""

    target: str
    """Value of the option ``dense_program``: ``cpu`` or ``cpu-fp32``."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPackage:
    """A served version of a model."""

    model: str
    version: int
    folder: Path
    labels: tuple[str, ...] = ()
    is_default: bool = True
    """True if it answers requests that name no version."""
    plan: str = ""
    program: DenseProgram


def check_models(repository: Path, models: Sequence[str]) -> list[str]:
    """Return the sorted names of the models to serve: ``models``, or all if that is empty."""
    known = models_in(repository)
    if not known:
        raise NotFoundError(f"{repository}: {_no_models(repository)}")
    for model in models:
        if model not in known:
            raise NotFoundError(f"{repository}: no model {model!r}; models: {', '.join(known)}")
    return sorted({*models} or known)


def _no_models(folder: Path) -> str:
    """Describe a folder without models. Often it is a level too low."""
    whole = folder.resolve()
    for levels, kind in ((2, "a package"), (1, "the folder of one model")):
        if next(folder.glob("/".join(["*"] * (2 - levels) + ["manifest.json"])), None):
            return (
                f"expected a repository, the folder of models, got {kind}; "
                f"its repository is {whole.parents[levels - 1]}"
            )
    return "expected <model>/<version>/manifest.json, found none"


def models_in(repository: Path) -> list[str]:
    """Sorted names of models with a version. Raises NotFoundError if the folder is unreadable."""
    if not repository.is_dir():
        raise NotFoundError(f"{repository}: expected a folder of models, found none")
    # Imported here: it imports numpy, which would start a thread before signals are blocked.
    from embershard.package.names import NAME_PATTERN

    try:
        folders = sorted(
            folder for folder in repository.iterdir() if re.fullmatch(NAME_PATTERN, folder.name)
        )
    except OSError as error:
        why = f"expected a folder of models that can be read: {error.strerror}"
        raise NotFoundError(f"{repository}: {why}") from error
    return [folder.name for folder in folders if _has_version(folder)]


def _has_version(model: Path) -> bool:
    """Also true if the folder cannot be read; the loader reports that."""
    from embershard.package.names import version_of

    try:
        versions = [folder for folder in model.iterdir() if version_of(folder.name)]
        return any(_may_exist(version / "manifest.json") for version in versions)
    except OSError as error:
        return not _is_absent(error)


def _may_exist(path: Path) -> bool:
    try:
        path.stat()
    except OSError as error:
        return not _is_absent(error)
    return True


def _is_absent(error: OSError) -> bool:
    return isinstance(error, FileNotFoundError | NotADirectoryError)
