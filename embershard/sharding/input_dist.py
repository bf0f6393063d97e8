"""``InputDist`` sends ids to the ranks of their rows, in two collectives for all collections.

sizes  int64 to each rank: 0, FAILED for a bad batch, or ENDED for none; the examples of each
       collection; for each collection, the ids of each stream
data   int32 words to each rank, for each collection: ids (two words each), lengths, weights,
       and a word of padding if their number is odd

Both are sent from the device of the batch. The host reads only the sizes.
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
    return list(pairwise(accumulate(lengths, initial=0)))


class InputDist:
    """Exchanges the batches of all ranks in three steps: constructor, ``send()``, ``finish()``.
    Each step starts the communication that the next step waits for, so that other work can run in
    between. Every rank builds them with the same collections, in the same order. Without
    ``requests``, ranks only tell each other whether they have a batch. This rank has none if there
    is a ``failure``, or ``is_end``: its data has ended."""

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
        """Set by ``send()``: True if the data of all ranks has ended; ``finish()`` returns
        nothing."""
        self._receivers = [receiver for receiver, _ in requests]
        self._streams = [_spans(receiver.streams) for receiver in self._receivers]
        """For each collection, the streams of each rank."""
        self._outgoing = list[Outgoing]()
        self._failure = failure
        self._is_sent = False
        self._sizes_of: list[Sizes] = []
        self._data: list[list[Tensor]] = []
        self._work: Any = None
        if failure is None and not is_end:
            try:
                self._outgoing = [receiver.sorter.sort(features) for receiver, features in requests]
            except Exception as error:  # Sent to all ranks, which wait for this one.
                self._failure = error
        status = ENDED if is_end else FAILED * (self._failure is not None)
        examples = [outgoing.examples for outgoing in self._outgoing] or [0] * len(self._receivers)
        head = torch.tensor([status, *examples], device=env.device)
        sizes = [self._sizes_to(rank, head) for rank in range(env.world_size)]
        self._numbers = [len(part) for part in sizes]
        self._own_sizes = torch.cat(sizes)
        own = self._numbers[env.rank]
        with collective(env.input_group, only_starts=True):
            self._sizes, self._sizes_work = all_to_all(
                self._own_sizes, [own] * env.world_size, self._numbers, group=env.input_group
            )

    def send(self) -> None:
        """Wait for the sizes and start to exchange the data. Raises InputError if some rank's batch
        is bad, or the data of some ranks has ended: the same message on every rank."""
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
        ids = [_spans(map(sum, sizes.sent)) for sizes in self._sizes_of]
        packed = [self._pack(to, ids) for to in range(self._env.world_size)]
        words = [self._words_from(source) for source in range(self._env.world_size)]
        with collective(self._env.input_group, only_starts=True):
            incoming, self._work = all_to_all(
                torch.cat(packed),
                [sum(counts) for counts in words],
                [len(part) for part in packed],
                group=self._env.input_group,
            )
        parts = iter(torch.split(incoming, [count for counts in words for count in counts]))
        self._data = [[next(parts) for _ in counts] for counts in words]

    def finish(self) -> list[Incoming]:
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
        if work is not None:
            with collective(self._env.input_group):
                work.wait()

    def _sizes_to(self, rank: int, head: Tensor) -> Tensor:
        """Sizes for a rank, after ``head``, which is the same for all ranks."""
        parts = [head]
        for place, spans in enumerate(self._streams):
            first, end = spans[rank]
            if self._outgoing:
                parts.append(self._outgoing[place].counts[first:end])
            else:
                parts.append(head.new_zeros(end - first))
        return torch.cat(parts)

    def _read_sizes(self, received: Tensor, sent: Sequence[Tensor]) -> list[Sizes]:
        """Sizes of each collection, from those received (CPU, ``(ranks, numbers)``) and those
        sent."""
        parts = [self._split_sizes(part, to) for to, part in enumerate(sent)]
        _, examples, *counts = self._split_sizes(received, self._env.rank)
        return [
            Sizes(of_ranks.tolist(), ids, [part[2 + place].tolist() for part in parts])
            for place, (of_ranks, ids) in enumerate(zip(examples.unbind(1), counts, strict=True))
        ]

    def _split_sizes(self, sizes: Tensor, rank: int) -> Sequence[Tensor]:
        """Split the result of ``_sizes_to``: status, examples, and ids of each collection."""
        counts = [
            1,
            len(self._receivers),
            *(receiver.streams[rank] for receiver in self._receivers),
        ]
        return torch.split(sizes, counts, dim=-1)

    def _words_from(self, source: int) -> list[int]:
        return [
            receiver.words(
                sizes.examples[source],
                int(sizes.received[source].sum()),
                is_weighted=outgoing.weights is not None,
                streams=receiver.streams[self._env.rank],
            )
            for receiver, outgoing, sizes in zip(
                self._receivers, self._outgoing, self._sizes_of, strict=True
            )
        ]

    def _pack(self, to: int, ids: Sequence[Spans]) -> Tensor:
        """int32 words for a rank. ``ids`` has the range of each rank's ids in each collection."""
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
        """Gather the failures of all ranks and raise the first one."""
        if FAILED not in statuses:
            self.is_end = 0 not in statuses
            if self.is_end:
                return
            raise InputError(
                f"rank {statuses.index(ENDED)}: data: expected a batch, as rank "
                f"{statuses.index(0)} has one, got the end"
            )
        message = "" if self._failure is None else str(self._failure) or repr(self._failure)
        messages = [message] * self._env.world_size
        with collective(self._env.input_group):
            dist.all_gather_object(messages, message, group=self._env.input_group)
        rank, message = next((rank, text) for rank, text in enumerate(messages) if text)
        raise InputError(f"rank {rank}: {message}") from self._failure
