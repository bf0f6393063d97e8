"""CPU time of a server on this machine, as /proc tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

LISTENING: Final = "0A"


def listening_processes(port: int, *, proc: Path = Path("/proc")) -> list[int]:
    """Processes that listen on a TCP port of any address of this machine and whose files we may
    see, this one left out. ``proc``: where the kernel shows processes."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return []
    folders = (each for each in proc.iterdir() if each.name.isdecimal())
    return sorted(
        int(folder.name)
        for folder in folders
        if int(folder.name) != os.getpid() and not sockets.isdisjoint(_links(folder / "fd"))
    )


def cpu_seconds(processes: Iterable[int], *, proc: Path = Path("/proc")) -> float | None:
    """User and system time that processes have used; None where one of them is gone."""
    ticks = 0
    for process in processes:
        try:
            line = (proc / str(process) / "stat").read_text()
        except OSError:
            return None
        # The name, in parentheses, may hold anything. Then comes field 3; 14 and 15 are times.
        fields = line[line.rindex(")") + 2 :].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:  # A kernel without IPv6.
            continue
        for line in lines:
            _, local, _, state, *rest = line.split()
            if state == LISTENING and int(local.rpartition(":")[2], 16) == port:
                yield rest[5]


def _links(folder: Path) -> Iterator[str]:
    try:
        entries = list(folder.iterdir())
    except OSError:  # Of another user, or gone.
        return
    for entry in entries:
        with suppress(OSError):  # Closed since it was listed.
            yield os.readlink(entry)
