"""Finding what to serve in ``<repository>/<model>/<version>/``."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from embershard.errors import NotFoundError

__all__ = ["ServedPackage", "check_models", "memory_limit"]

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPackage:
    """A version of a model, and where it lies."""

    model: str
    version: int
    folder: Path
    labels: tuple[str, ...] = ()
    is_default: bool = True
    """Whether it answers requests that name no version."""


def check_models(repository: Path, models: Sequence[str]) -> list[str]:
    """Says what is wrong with a repository before anything is loaded from it.

    Args:
        repository: the folder of models.
        models: names that must be there. None: any.

    Returns:
        Those that are to be served, each once, in order.

    Raises:
        NotFoundError: no models there, or one of them not.
    """
    found = _models(repository)
    if not found:
        raise NotFoundError(f"{repository}: {_no_models(repository)}")
    for model in models:
        if model not in found:
            known = ", ".join(found)
            raise NotFoundError(f"{repository}: no model {model!r}; models: {known}")
    return sorted({*models} or found)


def memory_limit(*, cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """Bytes of memory that this process may use: the machine's, or less where its cgroup, one above
    it (versions 1 and 2), or its address space is bounded (``ulimit -v``).

    Args:
        cgroups: where the cgroups are mounted.
        own_cgroup: the file that says which of them this process is in.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        limits.append(addresses)
    for file in _memory_limit_files(cgroups, own_cgroup):
        try:
            limit = file.read_text().strip()
        except OSError:
            continue
        if limit.isdecimal():
            limits.append(int(limit))
    return min(limits)


def _memory_limit_files(cgroups: Path, own_cgroup: Path) -> Iterator[Path]:
    """Those of the process's own cgroup and of each one above it. In a container the folder is
    often the container's own, while the name is the machine's: some of them do not exist."""
    try:
        lines = own_cgroup.read_text().splitlines()
    except OSError:
        lines = []
    for line in [*lines, "0::/"]:
        hierarchy, controllers, name = line.split(":", 2)
        unified = hierarchy == "0"
        if not unified and "memory" not in controllers.split(","):
            continue
        own = PurePosixPath(name.lstrip("/"))
        for part in (own, *own.parents):
            if unified:
                yield cgroups / part / "memory.max"
                yield cgroups / "unified" / part / "memory.max"
            else:
                yield cgroups / "memory" / part / "memory.limit_in_bytes"


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
    # Not above: numpy, which the package imports, starts a thread before signals are blocked.
    from embershard.package.names import version_of

    if not repository.is_dir():
        raise NotFoundError(f"{repository}: expected a folder of models, found none")
    found: dict[str, list[int]] = {}
    for manifest in repository.glob("*/*/manifest.json"):
        model, version = manifest.parts[-3], version_of(manifest.parts[-2])
        if version and not model.startswith("."):
            found.setdefault(model, []).append(version)
    return {model: sorted(found[model]) for model in sorted(found)}
