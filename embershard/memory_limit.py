"""Finds the memory that this process may use."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def memory_limit(*, cgroups: Path = CGROUPS, own_cgroup: Path = OWN_CGROUP) -> int:
    """The smallest of the machine's bytes, the limits of its cgroup and of the parent cgroups
    (versions 1 and 2), and ``ulimit -v``."""
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
    """Some may not exist: a container's cgroup often has the host's name but sees only its own part
    of ``cgroups``."""
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
