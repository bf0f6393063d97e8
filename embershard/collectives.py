"""Errors of failed collectives that name this rank and the ranks that did not take part.

gloo's errors name no rank. Therefore every rank whose collective fails reports it in the store of
torch.distributed. A rank without a report has ended or has not entered the collective.
"""

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed.distributed_c10d import _get_default_store

from embershard.errors import LostRankError

GLOO_TEXTS = ("gloo", "Wait timeout", "Application timeout caused pair closure")
"""Parts of gloo's error messages, which no other library has."""
TIMED_OUT = "time"
"""Part of gloo's messages about a timeout: "Timed out" or "timeout"."""
TIMEOUT_SECONDS, CLOSED_SECONDS = 3.0, 0.05
"""How long to wait for the reports of other ranks after a timeout, and, since torchrun ends all
ranks soon after one has ended, after a closed connection."""
POLL_SECONDS = 0.005
_NAMING = SimpleNamespace(waits=True)
_THREAD = threading.local()
"""``has_failed``: True if this thread's last collective failed and was reported in the store."""


@contextmanager
def named_by_caller() -> Iterator[None]:
    """In this block, errors of collectives are raised immediately and name no ranks."""
    before, _NAMING.waits = _NAMING.waits, False
    try:
        yield
    finally:
        _NAMING.waits = before


@contextmanager
def collective(group: Any, *, only_starts: bool = False) -> Iterator[None]:
    """A block of collectives of a group. Success withdraws this rank's report of a failure.

    ``only_starts``: the block only starts collectives, for which another block waits. Raises
    LostRankError if a collective failed.
    """
    try:
        yield
    except RuntimeError as error:
        lost = lost_rank(error, group)
        if lost is None:
            raise
        raise lost from error
    if not only_starts and getattr(_THREAD, "has_failed", False):
        _THREAD.has_failed = False
        with suppress(RuntimeError):  # The process with the store has ended.
            _get_default_store().delete_key(_key(dist.get_rank()))


def all_to_all(
    outgoing: Tensor, received: Sequence[int], sent: Sequence[int], *, group: Any
) -> tuple[Tensor, Any]:
    """Start an all-to-all of a group. Call it in a block of ``collective``.

    Args:
        outgoing: the values for each rank, in the order of ranks, ``(sum(sent),)``.
        received: number of values from each rank.
        sent: number of values for each rank.

    Returns:
        The values from each rank, ``(sum(received),)``, and the work to wait for before they are
        read. In a group of one rank: ``outgoing`` and None.
    """
    if len(sent) == 1:
        return outgoing, None
    incoming = outgoing.new_empty(sum(received))
    work = dist.all_to_all_single(
        incoming, outgoing, list(received), list(sent), group=group, async_op=True
    )
    return incoming, work


def lost_rank(error: RuntimeError, group: Any = None) -> LostRankError | None:
    """Convert gloo's error. None if ``error`` is not gloo's, or is a LostRankError already."""
    cause = cause_of(error)
    if cause is None:
        return None
    if not _NAMING.waits:
        return LostRankError(cause, cause=cause)
    rank, ranks = dist.get_rank(), dist.get_process_group_ranks(group or dist.group.WORLD)
    _THREAD.has_failed = True
    try:
        missing = missing_ranks(_get_default_store(), rank, ranks, cause)
    except RuntimeError:  # The process with the store has ended.
        missing = []
    return LostRankError(failed_message([rank], missing, cause), cause=cause)


def cause_of(error: RuntimeError) -> str | None:
    """The first sentence of gloo's message. None if the error does not come from gloo."""
    message = str(error)
    if isinstance(error, LostRankError) or not any(text in message for text in GLOO_TEXTS):
        return None
    return re.sub(r"^\[[^]]*\] ", "", message).partition(". ")[0]


def missing_ranks(store: Store, rank: int, ranks: Sequence[int], cause: str) -> list[int]:
    """Report that a collective of ``rank`` failed with ``cause``. Returns those of ``ranks`` that
    have reported no failure after a wait, which takes up to 3 s if any rank reported a timeout."""
    keys = {other: _key(other) for other in ranks}
    store.set(keys[rank], cause)
    begin = time.monotonic()
    while True:
        reports = given_texts(store, keys)
        timed_out = any(TIMED_OUT in text.lower() for text in reports.values())
        limit = TIMEOUT_SECONDS if timed_out else CLOSED_SECONDS
        if len(reports) == len(keys) or time.monotonic() - begin > limit:
            return [other for other in ranks if other not in reports]
        time.sleep(POLL_SECONDS)


def _key(rank: int) -> str:
    return f"embershard/lost/{rank}"


def given_texts(store: Store, keys: Mapping[int, str]) -> dict[int, str]:
    """The texts by rank, without missing ones. ``keys``: each rank's key."""
    return {rank: store.get(key).decode() for rank, key in keys.items() if store.check([key])}


def failed_message(failed: Sequence[int], missing: Sequence[int], cause: str) -> str:
    which = f"; {named_ranks(missing)} ended or did not enter it" if missing else ""
    return f"{named_ranks(failed)}: a collective failed{which}: {cause}"


def named_ranks(ranks: Sequence[int]) -> str:
    """Format as ``rank 1`` or ``ranks 0, 2``."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
