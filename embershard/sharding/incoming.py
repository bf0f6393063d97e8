"""``Receiver`` turns the ids that all ranks sent into ``Incoming``, the input of kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embershard.kernels import permute_segments
from embershard.sharding.environment import CPU, ShardingEnv
from embershard.sharding.layout import Layout
from embershard.sharding.outgoing import Outgoing, Sorter


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Ids of the batches of all ranks that this rank looks up."""

    outgoing: Outgoing
    examples: list[int]
    """Number of examples in each rank's batch."""

    ids: Tensor
    """int64 ``(total,)``: rows of the shard, part after part, rank after rank."""

    lengths: Tensor
    """int64 ``(parts * sum(examples),)``, in the same order."""

    weights: Tensor | None
    """float32 ``(total,)``."""

    counts: Tensor
    """int64 ``(parts, ranks)`` on CPU: ids of each part from each rank."""

    sent: list[int]
    """Ids of each stream that this rank sent, rank after rank."""

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Tensors that lookups and exchanges read on the device."""
        own = self.outgoing
        return self.ids, self.lengths, self.weights, own.bag_lengths, own.positions


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of one collection's data, on CPU."""

    examples: list[int]
    """Number of examples in each rank's batch."""

    received: Tensor
    """int64 ``(ranks, streams of this rank)``: ids from each rank."""

    sent: list[list[int]]
    """For each rank, ids of each stream that this rank sends to it."""


class Receiver:
    """Sorts the received data of one collection by part."""

    def __init__(self, layout: Layout, sorter: Sorter, env: ShardingEnv) -> None:
        self.sorter = sorter
        parts = layout.parts[env.rank]
        self.streams = [len(stream) for stream in layout.streams]
        ranks, own = len(self.streams), self.streams[env.rank]
        self._own = own
        self._stream_of_part = [part.stream for part in parts]
        order = [
            source * own + stream for stream in self._stream_of_part for source in range(ranks)
        ]
        self._order = torch.tensor(order, dtype=torch.int32, device=env.device)
        self._is_sorted = order == list(range(ranks * own))
        rows = [part.row for part in parts]
        self._rows = torch.tensor(rows, device=env.device) if any(rows) else None

    def words(self, examples: int, ids: int, *, is_weighted: bool, streams: int) -> int:
        """int32 words that a rank sends to one with this number of streams."""
        words = ids * (3 if is_weighted else 2) + examples * streams
        return words + words % 2

    def unpack(self, outgoing: Outgoing, sizes: Sizes, data: Sequence[Tensor]) -> Incoming:
        ids, lengths, weights = list[Tensor](), list[Tensor](), list[Tensor]()
        totals: list[int] = sizes.received.sum(1).tolist()
        for examples, count, words in zip(sizes.examples, totals, data, strict=True):
            end = 2 * count + examples * self._own
            ids.append(words[: 2 * count].view(torch.int64))
            lengths.append(words[2 * count : end])
            weights.append(words[end : end + count].view(torch.float32))
        flat, values = torch.cat(lengths).long(), torch.cat(ids)
        weighted = None if outgoing.weights is None else torch.cat(weights)
        if not self._is_sorted:
            segments = torch.tensor(sizes.examples, device=CPU).repeat_interleave(self._own)
            _, flat, _ = permute_segments(self._order, segments.to(flat.device), flat)
            segments = sizes.received.flatten().to(flat.device)
            _, values, weighted = permute_segments(self._order, segments, values, weighted)
        counts = sizes.received[:, self._stream_of_part].t()
        if self._rows is not None:
            of_parts = counts.sum(1).to(values.device)
            values = values + self._rows.repeat_interleave(of_parts, output_size=len(values))
        return Incoming(
            outgoing=outgoing,
            examples=sizes.examples,
            ids=values,
            lengths=flat,
            weights=weighted,
            counts=counts,
            sent=[count for of_rank in sizes.sent for count in of_rank],
        )
