"""``InputDist``: ids to the ranks that hold their rows; two collectives for all collections.

sizes  int64 to each rank: 0, FAILED if this rank's batch is bad, or ENDED if it has none; the
       examples of each collection; then of each collection the ids of each stream
data   int32 words to each rank, of each collection: ids (two words each), lengths, weights,
       and a word to make their number even

Both are sent from the device of the batch. Of this exchange the host reads the sizes only.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from embershard.collectives import all_to_all, collective
from embershard.errors import InputError
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.incoming import Incoming, Receiver, Sizes
from embershard.sharding.outgoing import Outgoing

FAILED, ENDED = 1, 2
Spans = list[tuple[int, int]]


def _spans(lengths: Iterable[int]) -> Spans:
    """First and end of each, where one follows the other."""
    return list(pairwise(accumulate(lengths, initial=0)))


class InputDist:
    """One exchange of the batches of all ranks, in three steps: built, ``send()``, ``finish()``.

    Each step starts what the next one waits for, so that other work fits between them. Every rank
    builds them with the same collections in the same order.

    Args:
        requests: for each collection what sorts and receives it, and its input. None of them: the
            ranks tell each other only whether they have a batch.
        failure: why this rank has no batch. None: it has one.
        is_end: whether this rank has none because its data has ended.
    """

    def __init__(
        self,
        env: ShardingEnv,
        requests: Sequence[tuple[Receiver, object]],
        *,
        failure: Exception | None = None,
        is_end: bool = False,
    ) -> None:
        self._env = env
        self.is_end = False
        """After ``send()``: whether the data of all ranks has ended. ``finish()`` gives nothing."""
        self._receivers = [receiver for receiver, _ in requests]
        self._streams = [_spans(each.streams) for each in self._receivers]
        """Of each collection: the streams of each rank."""
        self._outgoing = list[Outgoing]()
        self._failure = failure
        self._is_sent = False
        self._sizes_of: list[Sizes] = []
        self._data: list[list[Tensor]] = []
        self._work: Any = None
        if failure is None and not is_end:
            try:
                self._outgoing = [each.sorter.sort(features) for each, features in requests]
            except Exception as error:  # Told to all ranks, which wait for this one.
                self._failure = error
        status = ENDED if is_end else FAILED * (self._failure is not None)
        examples = [each.examples for each in self._outgoing] or [0] * len(self._receivers)
        head = torch.tensor([status, *examples], device=env.device)
        sizes = [self._sizes_to(rank, head) for rank in range(env.world_size)]
        self._numbers = [len(each) for each in sizes]
        self._own_sizes = torch.cat(sizes)
        own = self._numbers[env.rank]
        with collective(env.input_group, only_starts=True):
            self._sizes, self._sizes_work = all_to_all(
                self._own_sizes, [own] * env.world_size, self._numbers, group=env.input_group
            )

    def send(self) -> None:
        """Wait for the sizes; start to exchange the data. Raises InputError if some rank's batch is
        bad, or the data of some ranks has ended: the same message on every rank."""
        if self._is_sent:
            return
        self._is_sent = True
        self._wait(self._sizes_work)
        on_host = torch.cat([self._sizes, self._own_sizes]).cpu()
        received, sent = torch.split(on_host, [len(self._sizes), len(self._own_sizes)])
        received = received.view(self._env.world_size, -1)
        statuses: list[int] = received[:, 0].tolist()
        if any(statuses):
            self._refuse(statuses)
        if self.is_end or not self._receivers:
            return
        self._sizes_of = self._read_sizes(received, torch.split(sent, self._numbers))
        ids = [_spans(map(sum, each.sent)) for each in self._sizes_of]
        packed = [self._pack(to, ids) for to in range(self._env.world_size)]
        words = [self._words_from(source) for source in range(self._env.world_size)]
        with collective(self._env.input_group, only_starts=True):
            incoming, self._work = all_to_all(
                torch.cat(packed),
                [sum(each) for each in words],
                [len(each) for each in packed],
                group=self._env.input_group,
            )
        parts = iter(torch.split(incoming, [count for each in words for count in each]))
        self._data = [[next(parts) for _ in each] for each in words]

    def finish(self) -> list[Incoming]:
        """Wait for the data: for each collection, what this rank looks up."""
        self.send()
        if not self._data:
            return []
        self._wait(self._work)
        data = zip(*self._data, strict=True)
        return [
            receiver.unpack(outgoing, sizes, list(of_ranks))
            for receiver, outgoing, sizes, of_ranks in zip(
                self._receivers, self._outgoing, self._sizes_of, data, strict=True
            )
        ]

    def _wait(self, work: Any) -> None:
        """For the values of an ``all_to_all``."""
        if work is not None:
            with collective(self._env.input_group):
                work.wait()

    def _sizes_to(self, rank: int, head: Tensor) -> Tensor:
        """What a rank gets, beginning with what all get."""
        parts = [head]
        for place, spans in enumerate(self._streams):
            first, end = spans[rank]
            if self._outgoing:
                parts.append(self._outgoing[place].counts[first:end])
            else:
                parts.append(head.new_zeros(end - first))
        return torch.cat(parts)

    def _read_sizes(self, received: Tensor, sent: Sequence[Tensor]) -> list[Sizes]:
        """Of each collection, from the sizes received, on CPU, ``(ranks, numbers)``, and sent to
        each rank."""
        parts = [self._split_sizes(each, to) for to, each in enumerate(sent)]
        _, examples, *counts = self._split_sizes(received, self._env.rank)
        return [
            Sizes(of_ranks.tolist(), each, [part[2 + place].tolist() for part in parts])
            for place, (of_ranks, each) in enumerate(zip(examples.unbind(1), counts, strict=True))
        ]

    def _split_sizes(self, sizes: Tensor, rank: int) -> Sequence[Tensor]:
        """What ``_sizes_to`` a rank joined: status, examples, and the ids of each collection."""
        counts = [1, len(self._receivers), *(each.streams[rank] for each in self._receivers)]
        return torch.split(sizes, counts, dim=-1)

    def _words_from(self, source: int) -> list[int]:
        """Of each collection: words of its data."""
        return [
            each.words(
                sizes.examples[source],
                int(sizes.received[source].sum()),
                is_weighted=outgoing.weights is not None,
                streams=each.streams[self._env.rank],
            )
            for each, outgoing, sizes in zip(
                self._receivers, self._outgoing, self._sizes_of, strict=True
            )
        ]

    def _pack(self, to: int, ids: Sequence[Spans]) -> Tensor:
        """int32 words for a rank. ``ids``: of each collection, those for each rank."""
        parts = list[Tensor]()
        for outgoing, ids_of, streams_of in zip(self._outgoing, ids, self._streams, strict=True):
            own = slice(*ids_of[to])
            parts.append(outgoing.ids[own].contiguous().view(torch.int32))
            parts.append(outgoing.lengths[slice(*streams_of[to])].flatten())
            if outgoing.weights is not None:
                parts.append(outgoing.weights[own].contiguous().view(torch.int32))
            if sum(len(part) for part in parts) % 2:
                parts.append(parts[0].new_zeros(1))
        return torch.cat(parts)

    def _refuse(self, statuses: list[int]) -> None:
        """Every rank says what is wrong with its batch, and raises what the first one says."""
        if FAILED not in statuses:
            self.is_end = 0 not in statuses
            if self.is_end:
                return
            raise InputError(
                f"rank {statuses.index(ENDED)}: data: expected a batch, as rank "
                f"{statuses.index(0)} has one, got the end"
            )
        said = "" if self._failure is None else str(self._failure) or repr(self._failure)
        everyone = [said] * self._env.world_size
        with collective(self._env.input_group):
            dist.all_gather_object(everyone, said, group=self._env.input_group)
        rank, message = next((rank, each) for rank, each in enumerate(everyone) if each)
        raise InputError(f"rank {rank}: {message}") from self._failure
