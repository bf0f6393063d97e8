"""``move_to_huge_pages``: memory of tables in pages of 2 MiB, where the system gives them."""

import ctypes
import sys

from torch import Tensor

HUGE_PAGE_BYTES = 2 << 20
MADV_DONTNEED, MADV_HUGEPAGE = 4, 14
"""Of Linux."""


def move_to_huge_pages(zeros: Tensor) -> None:
    """Ask for huge pages, and give back those that the memory has: random rows of a large table
    in pages of 4 KiB miss the processor's cache of addresses at almost every row.

    Args:
        zeros: on CPU, in memory of its own that malloc gave. Zeros still, which the new pages
            hold, too.
    """
    first = -(-zeros.data_ptr() // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    size = (zeros.data_ptr() + zeros.nbytes) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES - first
    if sys.platform != "linux" or size <= 0:
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    # Advice: a kernel without huge pages refuses it, and the pages stay.
    if madvise(first, size, MADV_HUGEPAGE) == 0:
        madvise(first, size, MADV_DONTNEED)
