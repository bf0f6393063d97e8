"""Options of glibc's malloc for processes that serve or train."""

import ctypes
from collections.abc import Mapping
from typing import Final

INT_MAX: Final = (1 << 31) - 1
MALLOC_OPTIONS: Final = {
    -1: "MALLOC_TRIM_THRESHOLD_",
    -3: "MALLOC_MMAP_THRESHOLD_",
    -8: "MALLOC_ARENA_MAX",
}
"""Parameters of ``mallopt``, with the environment variables that set them as well."""


def set_malloc_options(environment: Mapping[str, str]) -> None:
    """Make glibc's malloc keep freed memory, and give each thread its own arena.

    Pages from the system would have to be cleared. By default, threads beyond eight per core share
    arenas, and a thread with idle priority may hold an arena's lock for milliseconds.

    Variables in ``environment`` take precedence. Call it early, since glibc reads its limit of
    arenas only once.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, name in MALLOC_OPTIONS.items():
        if mallopt is not None and name not in environment:
            mallopt(parameter, INT_MAX)
