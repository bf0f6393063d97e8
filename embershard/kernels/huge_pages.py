"""``move_to_huge_pages``: pages of 2 MiB for tables, if the system has them."""

import ctypes
import sys

from torch import Tensor

HUGE_PAGE_BYTES = 2 << 20
MADV_DONTNEED, MADV_HUGEPAGE = 4, 14
"""Values of Linux."""


def move_to_huge_pages(zeros: Tensor) -> None:
    """Ask for huge pages in place of a buffer's pages. With pages of 4 KiB, almost every random row
    of a large table misses the processor's cache of addresses. ``zeros`` is a CPU tensor that owns
    its memory and was never written to. It stays zero."""
    first = -(-zeros.data_ptr() // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    size = (zeros.data_ptr() + zeros.nbytes) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES - first
    if sys.platform != "linux" or size <= 0:
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    # A kernel without huge pages refuses this, and the buffer keeps its pages.
    if madvise(first, size, MADV_HUGEPAGE) == 0:
        madvise(first, size, MADV_DONTNEED)
