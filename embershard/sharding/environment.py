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
"""Most characters of a difference between ranks in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingEnv:
    """The ranks that train together, and their process groups.

    gloo matches collectives by their order, so each direction has its own group.
    """

    world_size: int
    rank: int
    process_group: Any
    """Group for dense gradients and construction."""

    input_group: Any
    """Group that sends ids to the ranks of their tables."""

    output_group: Any
    """Group that returns vectors, and sends their gradients."""

    checkpoint_group: Any = None
    """Gloo group of ``AsyncStateWriter``, whose thread must not share a group."""

    local_size: int | None = None
    """Ranks of a host, if hosts sum partial results before sending them. None: they do not."""

    cross_group: Any = None
    """With ``local_size``: the ranks that have this rank's place on their hosts, host after
    host."""

    host_group: Any = None
    """With ``local_size``: the ranks of this rank's host."""

    device: torch.device = CPU
    """Device of this rank's shards and batches."""

    @staticmethod
    def from_process_group(
        pg: Any, *, timeout: timedelta = TIMEOUT, local_size: int | None = None
    ) -> ShardingEnv:
        """Make an environment from a group of torch.distributed. Every rank of ``pg`` calls it.
        Other ranks may call it with another group at the same time.

        Args:
            pg: process group.
            timeout: time after which a collective fails that some rank has not entered.
            local_size: ranks of a host. None: ``LOCAL_WORLD_SIZE`` of torchrun, if it is equal
                everywhere and ``pg`` has all ranks. With several hosts of several ranks, partial
                sums are added inside hosts first.

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
            lambda: (_check_local_size(local_size, world_size),),
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


def _check_local_size(local_size: int | None, world_size: int) -> int | None:
    if local_size is not None and (local_size < 1 or world_size % local_size):
        raise InputError(
            f"local_size: expected a divisor of the world size {world_size}, got {local_size}"
        )
    return local_size


def local_world_size(default: int) -> int:
    """Ranks of this host: ``LOCAL_WORLD_SIZE`` of torchrun, or ``default`` if it is not set. Raises
    InputError if it is not a number of at least 1."""
    value = os.environ.get("LOCAL_WORLD_SIZE")
    if value is None:
        return default
    if not value.isdecimal() or int(value) < 1:
        raise InputError(f"LOCAL_WORLD_SIZE: expected a number of ranks, from 1, got {value!r}")
    return int(value)


def _local_size(pg: Any) -> int:
    """Ranks of each host by torchrun; all ranks of ``pg`` if hosts differ."""
    world_size = dist.get_world_size(pg)
    if _is_part(pg):
        return world_size
    value = os.environ.get("LOCAL_WORLD_SIZE", "")
    values = [value] * world_size
    with collective(pg):
        dist.all_gather_object(values, value, group=pg)
    own = int(value) if value.isdecimal() else 0
    return own if set(values) == {value} and own and world_size % own == 0 else world_size


def _own_group(pg: Any, parts: Sequence[list[int]], timeout: timedelta) -> Any:
    """Make the group of this rank's part. Every rank of ``pg`` helps to make all groups."""
    own = dist.get_rank()
    joint_parts = [ranks for ranks in parts if own in ranks or not _is_part(pg)]
    groups = [_new_group(pg, ranks, timeout, dist.get_backend(pg)) for ranks in joint_parts]
    return next(group for ranks, group in zip(joint_parts, groups, strict=True) if own in ranks)


def _is_part(pg: Any) -> bool:
    """True if ``pg`` lacks some ranks of the job, which then do not help to make its groups."""
    return dist.get_world_size(pg) < dist.get_world_size()


def _new_group(pg: Any, ranks: list[int], timeout: timedelta, backend: str) -> Any:
    return dist.new_group(
        ranks, timeout=timeout, backend=backend, use_local_synchronization=_is_part(pg)
    )


def _equalize_group_counts(pg: Any) -> None:
    """Give every rank of ``pg`` the same number of groups, by adding groups of one rank. With local
    synchronization, torch derives a group's name from this number, so ranks with different numbers
    would wait under different names."""
    count = _group_count()
    everyone = [count] * dist.get_world_size(pg)
    with collective(pg):
        dist.all_gather_object(everyone, count, group=pg)
    for _ in range(count, max(everyone)):
        dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)


def _group_count() -> int:
    """Number of groups of this rank. From torch 2.14 on, also groups that it helped to make."""
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
    """Build something on every rank that must be equal on all, by the lines of ``describe``.

    Raises InputError if building failed on some rank or the lines differ: the same message on every
    rank, with the rank's number. It is an ``error``, and of the original class if that is an
    ``error``. If ``group`` is None, exceptions are raised unchanged.
    """
    if group is None:
        return build()
    built: Built | None = None
    failure: Exception | None = None
    outcome: tuple[str, EmbershardError | None]
    try:
        built = build()
        lines = list(describe(built))
        outcome = (hashlib.sha256("\n".join(lines).encode()).hexdigest(), None)
    except Exception as problem:
        failure, outcome = problem, ("", _error_of_rank(group, problem, error))
    outcomes: list[tuple[str, EmbershardError | None]] = [outcome] * dist.get_world_size(group)
    with collective(group):
        dist.all_gather_object(outcomes, outcome, group=group)
    for _, refusal in outcomes:
        if refusal is not None:
            raise refusal from failure
    assert built is not None
    for rank, (digest, _) in enumerate(outcomes):
        if digest != outcomes[0][0]:
            difference = _first_difference(group, rank, lines)
            raise error(f"rank {rank}: expected the {what} of rank 0: {difference}")
    return built


def _error_of_rank(group: Any, problem: Exception, error: type[EmbershardError]) -> EmbershardError:
    """The error for every rank. Its class is one of embershard's, which every rank can unpickle."""
    bases = (base for base in type(problem).__mro__ if base.__module__.startswith("embershard."))
    kind = next((base for base in bases if issubclass(base, error)), error)
    return kind(f"rank {dist.get_rank(group)}: {str(problem) or type(problem).__name__}")


def _first_difference(group: Any, rank: int, lines: list[str]) -> str:
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
    """Build something picklable on rank 0 and send it to every rank. If ``build`` raises, every
    rank raises the same error, as in ``agree``. If ``group`` is None, exceptions are raised
    unchanged."""
    if group is None:
        return build()
    box: list[Any] = [None, None]
    failure: Exception | None = None
    if dist.get_rank(group) == 0:
        try:
            box[0] = build()
        except Exception as problem:
            failure, box[1] = problem, _error_of_rank(group, problem, error)
    with collective(group):
        dist.broadcast_object_list(box, group=group, group_src=0)
    if box[1] is not None:
        raise box[1] from failure
    built: Built = box[0]
    return built
