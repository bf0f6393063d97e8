"""``collective``: the error of a collective that fails names this rank and those that are missing.

gloo says neither. So the ranks whose collective fails say so in the store of torch.distributed:
those that do not have ended, or never entered it.
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

OF_GLOO = ("gloo", "Wait timeout", "Application timeout caused pair closure")
TIMED_OUT = "time"
"""In the message of a timeout, ``Timed out`` and ``timeout`` alike, but in no other."""
TIMEOUT_SECONDS, CLOSED_SECONDS = 3.0, 0.05
"""How long the messages of other ranks are waited for: after a timeout, and after a connection
that was closed, as torchrun ends all ranks soon after one."""
POLL_SECONDS = 0.005
_NAMING = SimpleNamespace(waits=True)
_THREAD = threading.local()
"""``has_failed``: whether the last collective of this thread did, and said so in the store."""


@contextmanager
def named_by_caller() -> Iterator[None]:
    """A block whose caller names lost ranks: errors of its collectives do not, and come at once."""
    before, _NAMING.waits = _NAMING.waits, False
    try:
        yield
    finally:
        _NAMING.waits = before


@contextmanager
def collective(group: Any, *, only_starts: bool = False) -> Iterator[None]:
    """A block of collectives of a group. After one that failed, one that ends takes back what this
    rank said of it.

    Args:
        only_starts: whether the collectives are asynchronous, and another block waits for them.

    Raises:
        LostRankError: one of them failed.
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
    """Start an all-to-all of a group, in a block of ``collective``.

    Args:
        outgoing: ``(sum(sent),)``: the values for each rank, rank after rank.
        received: how many come from each rank.
        sent: how many go to each rank.

    Returns:
        ``(sum(received),)``: the values from each rank, and the work whose ``wait`` ends when they
        are there. A rank alone sends nothing: its own values, and None.
    """
    if len(sent) == 1:
        return outgoing, None
    incoming = outgoing.new_empty(sum(received))
    work = dist.all_to_all_single(
        incoming, outgoing, list(received), list(sent), group=group, async_op=True
    )
    return incoming, work


def lost_rank(error: RuntimeError, group: Any = None) -> LostRankError | None:
    """The error in place of gloo's.

    Args:
        error: of a collective, or another.
        group: of the collective. None: the default group.

    Returns:
        None: ``error`` is another library's, or names the rank already.
    """
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
    """What gloo says, in short. None: the error is not gloo's."""
    said = str(error)
    if isinstance(error, LostRankError) or not any(each in said for each in OF_GLOO):
        return None
    return re.sub(r"^\[[^]]*\] ", "", said).partition(". ")[0]


def missing_ranks(store: Store, rank: int, ranks: Sequence[int], cause: str) -> list[int]:
    """Those of ``ranks`` whose last collective has not failed; this one's has.

    It waits for the others: up to 3 s if that of some rank timed out.
    """
    keys = {each: _key(each) for each in ranks}
    store.set(keys[rank], cause)
    begin = time.monotonic()
    while True:
        given = given_texts(store, keys)
        timed_out = any(TIMED_OUT in text.lower() for text in given.values())
        limit = TIMEOUT_SECONDS if timed_out else CLOSED_SECONDS
        if len(given) == len(keys) or time.monotonic() - begin > limit:
            return [each for each in ranks if each not in given]
        time.sleep(POLL_SECONDS)


def _key(rank: int) -> str:
    return f"embershard/lost/{rank}"


def given_texts(store: Store, keys: Mapping[int, str]) -> dict[int, str]:
    """The texts that are there, each under the key of its rank."""
    return {rank: store.get(key).decode() for rank, key in keys.items() if store.check([key])}


def failed_message(failed: Sequence[int], missing: Sequence[int], cause: str) -> str:
    """That a collective failed on some ranks, and which others did not take part."""
    which = f"; {named_ranks(missing)} ended or did not enter it" if missing else ""
    return f"{named_ranks(failed)}: a collective failed{which}: {cause}"


def named_ranks(ranks: Sequence[int]) -> str:
    """``rank 1``, or ``ranks 0, 2``."""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
