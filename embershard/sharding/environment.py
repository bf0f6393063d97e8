"""``ShardingEnv``: the ranks that train together, and their process groups."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from embershard.collectives import collective
from embershard.errors import EmbershardError, InputError

Built = TypeVar("Built")

TIMEOUT = timedelta(minutes=5)
CPU = torch.device("cpu")
LINE_CHARACTERS = 300
"""Of a difference between ranks, in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingEnv:
    """The ranks that train together.

    gloo matches collectives by their order, so each direction has a group of its own.
    """

    world_size: int
    rank: int
    process_group: Any
    """Of dense gradients and of construction."""

    input_group: Any
    """Of ids on their way to tables."""

    output_group: Any
    """Of vectors on their way back, and of their gradients."""

    checkpoint_group: Any = None
    """Of ``AsyncStateWriter``, in gloo: what its thread sends must not meet the rest."""

    local_size: int | None = None
    """Ranks of a host, if hosts add up partial sums before they send them. None: they do not."""

    cross_group: Any = None
    """The ranks with the same place in their hosts, host after host; with ``local_size``."""

    host_group: Any = None
    """The ranks of this rank's host; with ``local_size``."""

    device: torch.device = CPU
    """Of this rank's shards and batches."""

    @staticmethod
    def from_process_group(
        pg: Any, *, timeout: timedelta = TIMEOUT, local_size: int | None = None
    ) -> ShardingEnv:
        """The ranks of a group of torch.distributed. Every rank of ``pg`` calls it; ranks outside
        may call it with a group of their own at the same time.

        Args:
            pg: the group.
            timeout: after which a collective that some rank has not entered fails.
            local_size: ranks of a host. None: what torchrun says (``LOCAL_WORLD_SIZE``), if it is
                the same everywhere and ``pg`` has all ranks. If there are several hosts of several
                ranks, partial sums are added inside hosts first.

        Raises:
            InputError: no process group is initialized; or ``local_size`` does not divide the
                number of ranks, or differs between them: the same message on every rank.
        """
        if not dist.is_initialized():
            raise InputError(
                "ShardingEnv: expected an initialized process group, got none; call "
                "torch.distributed.init_process_group('gloo') first, under torchrun"
            )
        pg = pg or dist.group.WORLD
        if _is_part(pg):
            _equalize_group_counts(pg)
        backends = [dist.get_backend(pg), dist.get_backend(pg), "gloo"]
        ranks = dist.get_process_group_ranks(pg)
        groups = [_new_group(pg, ranks, timeout, backend) for backend in backends]
        world_size = dist.get_world_size(pg)
        (local_size,) = agree(
            pg,
            lambda: (_checked(local_size, world_size),),
            lambda checked: [f"local_size {checked[0]}"],
            what="ShardingEnv",
        )
        if local_size is None:
            local_size = _local_size(pg)
        has_hosts = 1 < local_size < world_size
        places = [ranks[place::local_size] for place in range(local_size)]
        hosts = [ranks[at : at + local_size] for at in range(0, world_size, local_size)]
        return ShardingEnv(
            world_size=world_size,
            rank=dist.get_rank(pg),
            process_group=pg,
            input_group=groups[0],
            output_group=groups[1],
            checkpoint_group=groups[2],
            local_size=local_size if has_hosts else None,
            cross_group=_own_group(pg, places, timeout) if has_hosts else None,
            host_group=_own_group(pg, hosts, timeout) if has_hosts else None,
        )


def _checked(local_size: int | None, world_size: int) -> int | None:
    if local_size is not None and (local_size < 1 or world_size % local_size):
        raise InputError(
            f"local_size: expected a divisor of the world size {world_size}, got {local_size}"
        )
    return local_size


def local_world_size(default: int) -> int:
    """Ranks of this host, as torchrun says (``LOCAL_WORLD_SIZE``); ``default`` where it is not set.

    Raises:
        InputError: it is no number of 1 or more.
    """
    said = os.environ.get("LOCAL_WORLD_SIZE")
    if said is None:
        return default
    if not said.isdecimal() or int(said) < 1:
        raise InputError(f"LOCAL_WORLD_SIZE: expected a number of ranks, from 1, got {said!r}")
    return int(said)


def _local_size(pg: Any) -> int:
    """Ranks of each host of torchrun; all of ``pg`` if hosts differ."""
    world_size = dist.get_world_size(pg)
    if _is_part(pg):
        return world_size
    said = os.environ.get("LOCAL_WORLD_SIZE", "")
    everyone = [said] * world_size
    with collective(pg):
        dist.all_gather_object(everyone, said, group=pg)
    own = int(said) if said.isdecimal() else 0
    return own if set(everyone) == {said} and own and world_size % own == 0 else world_size


def _own_group(pg: Any, parts: Sequence[list[int]], timeout: timedelta) -> Any:
    """The group of the part with this rank; every rank of ``pg`` takes part in making all of
    them."""
    own = dist.get_rank()
    made = [ranks for ranks in parts if own in ranks or not _is_part(pg)]
    groups = [_new_group(pg, ranks, timeout, dist.get_backend(pg)) for ranks in made]
    return next(group for ranks, group in zip(made, groups, strict=True) if own in ranks)


def _is_part(pg: Any) -> bool:
    """Whether some ranks of the job are not in ``pg``: they take no part in making its groups."""
    return dist.get_world_size(pg) < dist.get_world_size()


def _new_group(pg: Any, ranks: list[int], timeout: timedelta, backend: str) -> Any:
    """A group of some ranks of ``pg``."""
    return dist.new_group(
        ranks, timeout=timeout, backend=backend, use_local_synchronization=_is_part(pg)
    )


def _equalize_group_counts(pg: Any) -> None:
    """Give every rank of ``pg`` the same number of groups, by groups of one rank.

    torch names a group with local synchronization by that number: ranks with different numbers
    would wait for each other under different names.
    """
    count = _group_count()
    everyone = [count] * dist.get_world_size(pg)
    with collective(pg):
        dist.all_gather_object(everyone, count, group=pg)
    for _ in range(count, max(everyone)):
        dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)


def _group_count() -> int:
    """The groups that this rank is in. From torch 2.14 on: also those that it helped to make."""
    world = dist.distributed_c10d._world
    return world.group_count if torch.__version__ >= "2.14" else len(world.pg_names)


def agree(
    group: Any,
    build: Callable[[], Built],
    describe: Callable[[Built], Sequence[str]] = lambda _: (),
    *,
    error: type[EmbershardError] = InputError,
    what: str = "plan and tables",
) -> Built:
    """Build something on every rank that must be the same on all.

    Args:
        group: the ranks. None: this process alone, whose exceptions are raised as they are.
        build: may raise.
        describe: lines of what was built; equal if it is the same. By default nothing is compared.
        what: is built, for the message.

    Raises:
        InputError: building failed on some rank, or the lines differ: the same message on every
            rank, with the rank named. It is an ``error``, of the class that was raised if that
            is one too.
    """
    if group is None:
        return build()
    built: Built | None = None
    failure: Exception | None = None
    said: tuple[str, EmbershardError | None]
    try:
        built = build()
        lines = list(describe(built))
        said = (hashlib.sha256("\n".join(lines).encode()).hexdigest(), None)
    except Exception as problem:
        failure, said = problem, ("", _shared(group, problem, error))
    everyone: list[tuple[str, EmbershardError | None]] = [said] * dist.get_world_size(group)
    with collective(group):
        dist.all_gather_object(everyone, said, group=group)
    for _, refusal in everyone:
        if refusal is not None:
            raise refusal from failure
    assert built is not None
    for rank, (value, _) in enumerate(everyone):
        if value != everyone[0][0]:
            raise error(
                f"rank {rank}: expected the {what} of rank 0: {_differing(group, rank, lines)}"
            )
    return built


def _shared(group: Any, problem: Exception, error: type[EmbershardError]) -> EmbershardError:
    """What every rank raises. Its class is the library's, which every rank can unpickle."""
    own = (each for each in type(problem).__mro__ if each.__module__.startswith("embershard."))
    kind = next((each for each in own if issubclass(each, error)), error)
    return kind(f"rank {dist.get_rank(group)}: {str(problem) or type(problem).__name__}")


def _differing(group: Any, rank: int, lines: list[str]) -> str:
    """The first line in which a rank differs from rank 0, on every rank."""
    both: list[list[str]] = []
    for source in (0, rank):
        box = [lines]
        with collective(group):
            dist.broadcast_object_list(box, group=group, group_src=source)
        both.append(box[0])
    pairs = zip_longest(*both, fillvalue="nothing")
    expected, got = next((a, b) for a, b in pairs if a != b)
    return f"{expected:.{LINE_CHARACTERS}}, got {got:.{LINE_CHARACTERS}}"


def from_rank_0(
    group: Any, build: Callable[[], Built], *, error: type[EmbershardError] = InputError
) -> Built:
    """What rank 0 builds, on every rank.

    Args:
        group: the ranks. None: this process alone, whose exceptions are raised as they are.
        build: called on rank 0; gives what can be pickled.

    Raises:
        InputError: it raised: the same message on every rank. It is an ``error``, of the class
            that was raised if that is one too.
    """
    if group is None:
        return build()
    box: list[Any] = [None, None]
    failure: Exception | None = None
    if dist.get_rank(group) == 0:
        try:
            box[0] = build()
        except Exception as problem:
            failure, box[1] = problem, _shared(group, problem, error)
    with collective(group):
        dist.broadcast_object_list(box, group=group, group_src=0)
    if box[1] is not None:
        raise box[1] from failure
    built: Built = box[0]
    return built
