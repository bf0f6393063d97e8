"""``InputDist``: ids to the ranks that hold their rows; two collectives for all collections.

sizes  int64 to each rank: 0, FAILED if this rank's batch is bad, or ENDED if it has none; then of
       each collection its examples and ids
data   int32 words to each rank, of each collection: ids (two words each), lengths, weights,
       and a word to make their number even
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from embershard.collectives import collective
from embershard.errors import InputError
from embershard.kernels import permute_segments
from embershard.sharding.environment import ShardingEnv
from embershard.sharding.layout import Layout
from embershard.sharding.outgoing import Outgoing, Sorter

FAILED, ENDED = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """What the kernels of a rank look up, of the batches of all ranks."""

    outgoing: Outgoing
    """Of this rank's own batch."""

    examples: list[int]
    """B of each rank."""

    ids: Tensor
    """int64 ``(total,)``: rows within their shard, part after part, rank after rank."""

    lengths: Tensor
    """int64 ``(parts * sum(examples),)``, in the same order."""

    weights: Tensor | None
    """float32 ``(total,)``."""

    counts: Tensor
    """int64 ``(parts, ranks)``: ids of a part from a rank."""


class Receiver:
    """Sorts what a rank receives for one collection by part."""

    def __init__(self, layout: Layout, sorter: Sorter, rank: int) -> None:
        self.sorter = sorter
        parts = layout.parts[rank]
        self.streams = [len(each) for each in layout.streams]
        ranks, own = len(self.streams), self.streams[rank]
        self._ranks, self._own, self._parts = ranks, own, len(parts)
        order = [source * own + part.stream for part in parts for source in range(ranks)]
        self._order = torch.tensor(order, dtype=torch.int32)
        self._is_sorted = order == list(range(ranks * own))
        rows = torch.tensor([part.row for part in parts]).long()
        self._rows = rows if bool(rows.any()) else None

    def words(self, examples: int, ids: int, *, is_weighted: bool, streams: int) -> int:
        """Words of the data that a rank sends to one that receives so many streams."""
        words = ids * (3 if is_weighted else 2) + examples * streams
        return words + words % 2

    def unpack(
        self, outgoing: Outgoing, sizes: list[tuple[int, int]], data: list[Tensor]
    ) -> Incoming:
        """What the kernels look up, from the data of all ranks.

        Args:
            outgoing: of this rank.
            sizes: examples and ids from each rank.
            data: int32 words from each rank.
        """
        ids, lengths, weights = list[Tensor](), list[Tensor](), list[Tensor]()
        for (examples, count), words in zip(sizes, data, strict=True):
            end = 2 * count + examples * self._own
            ids.append(words[: 2 * count].view(torch.int64))
            lengths.append(words[2 * count : end])
            weights.append(words[end : end + count].view(torch.float32))
        examples_of = [examples for examples, _ in sizes]
        flat = torch.cat(lengths).long()
        counts = torch.cat(
            [
                each.view(self._own, examples).sum(1)
                for each, examples in zip(lengths, examples_of, strict=True)
            ]
        )
        values = torch.cat(ids)
        weighted = None if outgoing.weights is None else torch.cat(weights)
        if not self._is_sorted:
            segments = torch.tensor(examples_of).repeat_interleave(self._own)
            _, flat, _ = permute_segments(self._order, segments, flat)
            counts, values, weighted = permute_segments(self._order, counts, values, weighted)
        counts = counts.view(self._parts, self._ranks)
        if self._rows is not None:
            values = values + self._rows.repeat_interleave(counts.sum(1))
        return Incoming(
            outgoing=outgoing,
            examples=examples_of,
            ids=values,
            lengths=flat,
            weights=weighted,
            counts=counts,
        )


class InputDist:
    """One exchange of the batches of all ranks, in three steps: built, ``send()``, ``finish()``.

    Each step starts what the next one waits for, so that other work fits between them. Every rank
    builds them with the same collections in the same order.

    Args:
        env: the ranks.
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
        self._outgoing = list[Outgoing]()
        self._failure = failure
        self._is_sent = False
        self._data: list[Tensor] = []
        self._work: Any = None
        if failure is None and not is_end:
            try:
                self._outgoing = [each.sorter.sort(features) for each, features in requests]
            except Exception as error:  # Told to all ranks, which wait for this one.
                self._failure = error
        sizes = torch.zeros(env.world_size, 1 + 2 * len(requests), dtype=torch.int64)
        sizes[:, 0] = ENDED if is_end else FAILED * (self._failure is not None)
        for place, outgoing in enumerate(self._outgoing):
            sizes[:, 1 + 2 * place] = outgoing.examples
            sizes[:, 2 + 2 * place] = torch.tensor(outgoing.counts)
        self._sizes = torch.empty_like(sizes)
        with collective(env.input_group):
            self._sizes_work: Any = dist.all_to_all_single(
                self._sizes, sizes, group=env.input_group, async_op=True
            )

    def send(self) -> None:
        """Wait for the sizes; start to exchange the data.

        Raises:
            InputError: some rank's batch is bad, or the data of some ranks has ended: the same
                message on every rank.
        """
        if self._is_sent:
            return
        self._is_sent = True
        with collective(self._env.input_group):
            self._sizes_work.wait()
        statuses: list[int] = self._sizes[:, 0].tolist()
        if any(statuses):
            self._refuse(statuses)
        if self.is_end or not self._receivers:
            return
        rank, ranks = self._env.rank, range(self._env.world_size)
        packed = [self._pack(to) for to in ranks]
        words = [
            sum(
                each.words(
                    examples,
                    ids,
                    is_weighted=outgoing.weights is not None,
                    streams=each.streams[rank],
                )
                for each, outgoing, (examples, ids) in zip(
                    self._receivers, self._outgoing, self._sizes_from(source), strict=True
                )
            )
            for source in ranks
        ]
        sent = torch.cat(packed)
        received = sent.new_empty(sum(words))
        with collective(self._env.input_group):
            self._work = dist.all_to_all_single(
                received,
                sent,
                words,
                [len(each) for each in packed],
                group=self._env.input_group,
                async_op=True,
            )
        self._data = list(torch.split(received, words))

    def finish(self) -> list[Incoming]:
        """Wait for the data: for each collection, what this rank looks up."""
        self.send()
        if self._work is None:
            return []
        with collective(self._env.input_group):
            self._work.wait()
        found, places = list[Incoming](), [0] * len(self._data)
        for at, (receiver, outgoing) in enumerate(
            zip(self._receivers, self._outgoing, strict=True)
        ):
            sizes = [self._sizes_from(source)[at] for source in range(len(self._data))]
            data = list[Tensor]()
            for source, (examples, ids) in enumerate(sizes):
                words = receiver.words(
                    examples,
                    ids,
                    is_weighted=outgoing.weights is not None,
                    streams=receiver.streams[self._env.rank],
                )
                data.append(self._data[source][places[source] : places[source] + words])
                places[source] += words
            found.append(receiver.unpack(outgoing, sizes, data))
        return found

    def _sizes_from(self, source: int) -> list[tuple[int, int]]:
        """Examples and ids of each collection."""
        numbers: list[int] = self._sizes[source, 1:].tolist()
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def _pack(self, to: int) -> Tensor:
        """int32 words for a rank."""
        parts = list[Tensor]()
        for receiver, outgoing in zip(self._receivers, self._outgoing, strict=True):
            ids = list(pairwise(accumulate(outgoing.counts, initial=0)))[to]
            streams = list(pairwise(accumulate(receiver.streams, initial=0)))[to]
            parts.append(outgoing.ids[slice(*ids)].contiguous().view(torch.int32))
            parts.append(outgoing.lengths[slice(*streams)].flatten())
            if outgoing.weights is not None:
                parts.append(outgoing.weights[slice(*ids)].contiguous().view(torch.int32))
            if sum(len(part) for part in parts) % 2:
                parts.append(torch.zeros(1, dtype=torch.int32))
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
