"""Finding what to serve in ``<repository>/<model>/<version>/``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from embershard.errors import NotFoundError, PackageError

__all__ = ["ServedPackage", "check_folder", "find_package"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPackage:
    """Where a version of a model lies."""

    model: str
    version: int
    folder: Path


def find_package(repository: Path, *, model: str = "", version: int = 0) -> ServedPackage:
    """Find one version of one model.

    Args:
        repository: the folder of models.
        model: its name. Empty: the only one there.
        version: 0: the highest one there.

    Raises:
        NotFoundError: nothing there of that name, or several where one must be named.
    """
    models = _models(repository)
    if not models:
        raise NotFoundError(f"{repository}: {_no_models(repository)}")
    if not model:
        if len(models) > 1:
            known = ", ".join(models)
            raise NotFoundError(f"{repository}: several models, name one (--model): {known}")
        model = next(iter(models))
    if model not in models:
        raise NotFoundError(f"{repository}: no model {model!r}; models: {', '.join(models)}")
    versions = models[model]
    chosen = version or max(versions)
    if chosen not in versions:
        known = ", ".join(str(number) for number in versions)
        raise NotFoundError(f"{repository}: no version {chosen} of {model!r}; versions: {known}")
    return ServedPackage(model=model, version=chosen, folder=repository / model / str(chosen))


def check_folder(package: ServedPackage) -> None:
    """Compares a package's manifest with the folders it lies in.

    Raises:
        PackageError: it says another model or version, or is damaged.
    """
    # Not above: it brings numpy, whose threads must not begin before a command has blocked signals.
    from embershard.package.exchange import read_settled
    from embershard.package.folder_checks import read_manifest

    manifest = read_settled(package.folder, lambda: read_manifest(package.folder))
    for field, folder, said in (
        ("model", package.model, manifest.model),
        ("version", package.version, manifest.version),
    ):
        if said != folder:
            raise PackageError(
                f"manifest.json: {field}: expected {folder} (its folder), got {said}"
            )


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


def _models(repository: Path) -> dict[str, list[int]]:
    """Versions of each model, both in order."""
    if not repository.is_dir():
        raise NotFoundError(f"{repository}: expected a folder of models, found none")
    found: dict[str, list[int]] = {}
    for manifest in repository.glob("*/*/manifest.json"):
        model, version = manifest.parts[-3], manifest.parts[-2]
        is_version = version.isascii() and version.isdigit() and version[0] != "0"
        if is_version and not model.startswith("."):
            found.setdefault(model, []).append(int(version))
    return {model: sorted(found[model]) for model in sorted(found)}
