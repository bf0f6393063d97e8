"""Finding what to serve in ``<repository>/<model>/<version>/``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embershard.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseProgram:
    """How a package's dense program is run."""

    target: str
    """As the option ``dense_program`` names it: ``cpu`` or ``cpu-fp32``."""
    why: str
    """Why it runs so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPackage:
    """A version of a model, and where it lies."""

    model: str
    version: int
    folder: Path
    labels: tuple[str, ...] = ()
    is_default: bool = True
    """Whether it answers requests that name no version."""
    plan: str = ""
    """Name of the plan that places its tables."""
    program: DenseProgram


def check_models(repository: Path, models: Sequence[str]) -> list[str]:
    """Says what is wrong with a repository before anything is loaded from it. Returns the models
    that are to be served, each once, in order; of none named, all."""
    found = models_in(repository)
    if not found:
        raise NotFoundError(f"{repository}: {_no_models(repository)}")
    for model in models:
        if model not in found:
            known = ", ".join(found)
            raise NotFoundError(f"{repository}: no model {model!r}; models: {known}")
    return sorted({*models} or found)


def _no_models(folder: Path) -> str:
    """What is wrong with a folder without models: often it is one level too low."""
    whole = folder.resolve()
    for levels, kind in ((2, "a package"), (1, "the folder of one model")):
        if next(folder.glob("/".join(["*"] * (2 - levels) + ["manifest.json"])), None):
            return (
                f"expected a repository, the folder of models, got {kind}; "
                f"its repository is {whole.parents[levels - 1]}"
            )
    return "expected <model>/<version>/manifest.json, found none"


def models_in(repository: Path) -> list[str]:
    """Models that have a version, in order. `NotFoundError`: there is no such folder."""
    if not repository.is_dir():
        raise NotFoundError(f"{repository}: expected a folder of models, found none")
    # Not above: numpy, which the package imports, starts a thread before signals are blocked.
    from embershard.package.names import NAME_PATTERN

    try:
        folders = sorted(
            each for each in repository.iterdir() if re.fullmatch(NAME_PATTERN, each.name)
        )
    except OSError as error:
        why = f"expected a folder of models that can be read: {error.strerror}"
        raise NotFoundError(f"{repository}: {why}") from error
    return [folder.name for folder in folders if _has_version(folder)]


def _has_version(model: Path) -> bool:
    """Whether a version lies there. Likewise if it cannot be read: the loader says why."""
    from embershard.package.names import version_of

    try:
        versions = [each for each in model.iterdir() if version_of(each.name)]
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
