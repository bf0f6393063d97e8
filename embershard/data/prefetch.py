"""Items of an iterator, computed ahead on a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator
from typing import Any, TypeVar

Item = TypeVar("Item")

_END = object()


def prefetched(items: Generator[Item, None, None], depth: int) -> Generator[Item, None, None]:
    """The same items. At most ``depth`` of them are ready or being computed. The thread starts with
    the first ``next``. It ends after the last item, or soon after the returned iterator is closed
    or collected, and closes ``items``. Errors of ``items`` are raised in the consumer."""
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    slots = threading.Semaphore(depth)
    stopped = threading.Event()

    def produce() -> None:
        last: Any = _END
        try:
            while slots.acquire() and not stopped.is_set():
                ready.put(next(items))
        except StopIteration:
            pass
        except BaseException as error:
            last = error
        finally:
            items.close()
            ready.put(last)

    thread = threading.Thread(target=produce, name="embershard-prefetch", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not _END:
            if isinstance(item, BaseException):
                raise item
            slots.release()
            yield item
    finally:
        stopped.set()
        slots.release()
        thread.join()
