"""``set_malloc_options``: for a process that does nothing but serve, or train."""

import ctypes
from collections.abc import Mapping
from typing import Final

INT_MAX: Final = (1 << 31) - 1
MALLOC_OPTIONS: Final = {
    -1: "MALLOC_TRIM_THRESHOLD_",
    -3: "MALLOC_MMAP_THRESHOLD_",
    -8: "MALLOC_ARENA_MAX",
}
"""Parameters of ``mallopt``, each with the variable by which glibc takes it."""


def set_malloc_options(environment: Mapping[str, str]) -> None:
    """Has glibc's malloc keep memory for the next batch, since the system clears every page
    again, and give each new thread an arena of its own: by default threads beyond eight for each
    core share one, with a lock that a thread of idle priority may hold for milliseconds.

    What the environment says holds as said. Does nothing with another C library. To be called
    before many threads have allocated, since glibc looks at its limit of arenas once.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for parameter, name in MALLOC_OPTIONS.items():
        if mallopt is not None and name not in environment:
            mallopt(parameter, INT_MAX)
