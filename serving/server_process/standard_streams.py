"""Standard streams of a server: one that is closed or not read does not hold it up."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import Final

from embershard.serving.server_process.logs import DescriptorStream

__all__ = ["open_closed_streams", "write_aside"]

OUTPUT: Final = 1
ERROR: Final = 2


def open_closed_streams() -> None:
    """Opens /dev/null for each standard stream that is closed: else the next socket would have its
    number, and clients would get what libraries write to it."""
    for descriptor in (0, OUTPUT, ERROR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number.
    if sys.stderr is None:
        sys.stderr = os.fdopen(ERROR, "w", closefd=False)


def write_aside(text: str) -> None:
    """Writes to standard output on a thread of its own, which waits for the reader."""

    def write() -> None:
        with suppress(OSError):  # The reader closed the pipe. The log has the same line.
            DescriptorStream(OUTPUT).write(text.encode())

    threading.Thread(target=write, name="embershard-stdout", daemon=True).start()
