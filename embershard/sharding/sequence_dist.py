"""Vectors of ids back to the ranks that sent the ids; their gradients the same way in reverse.

A rank returns to each rank the vectors of its ids, part after part; the receiver writes them to
the places where the ids stood:

    ids sent       rank 0: [7, 9]        rank 1: [31]
    positions              [0, 2]                [1]
    output         row 0: vector of 7, row 1: vector of 31, row 2: vector of 9
"""

from functools import partial
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from embershard.sharding.environment import CPU, ShardingEnv
from embershard.sharding.incoming import Incoming
from embershard.sharding.layout import Layout
from embershard.sharding.vector_exchange import QCommsConfig, VectorBlock, exchange_vectors


class SequenceDist:
    """The exchange of one collection that does not pool, of vectors of ``dim`` columns."""

    def __init__(self, layout: Layout, env: ShardingEnv, dim: int, comms: QCommsConfig) -> None:
        self._env, self._dim = env, dim
        self._exchange = partial(exchange_vectors, group=env.output_group, comms=comms)
        widths = [part.width for part in layout.parts[env.rank]]
        self._widths = torch.tensor(widths, dtype=torch.int64, device=CPU)
        parts = [part for own in layout.parts for part in own]
        firsts = accumulate((len(own) for own in layout.streams), initial=0)
        self._streams = [
            first + part.stream
            for first, own in zip(firsts, layout.parts, strict=False)
            for part in own
        ]
        self._columns = [slice(*part.shard.columns) for part in parts]
        self._is_whole = all(part.width == dim for part in parts)
        self._parts_of_rank = [len(own) for own in layout.parts]

    def forward(self, vectors: Tensor, incoming: Incoming) -> Tensor:
        """
        Args:
            vectors: float32, flat: of this rank's parts, part after part, rank after rank.
            incoming: what they were looked up for.

        Returns:
            float32 ``(ids of all lookups, dim)``; zeros for -1.
        """
        rows = self._rows(incoming)
        sent = _transposed(vectors, incoming.counts * self._widths.unsqueeze(1))
        theirs, ours = self._theirs(incoming), self._ours(rows)
        received = self._exchange(sent, theirs, ours, is_backward=False)
        output = vectors.new_zeros(sum(incoming.outgoing.bag_counts), self._dim)
        if self._is_whole:
            output[torch.cat(rows)] = received.view(-1, self._dim)
            return output
        blocks = torch.split(received, self._sizes(rows))
        for at, columns, block in zip(rows, self._columns, blocks, strict=True):
            output[at, columns] = block.view(len(at), columns.stop - columns.start)
        return output

    def backward(self, gradient: Tensor, incoming: Incoming) -> Tensor:
        """Of ``forward``'s output to that of ``vectors``, as the mean over ranks."""
        gradient = gradient / self._env.world_size
        rows = self._rows(incoming)
        if self._is_whole:
            sent = gradient[torch.cat(rows)].flatten()
        else:
            blocks = zip(rows, self._columns, strict=True)
            sent = torch.cat([gradient[at, columns].flatten() for at, columns in blocks])
        theirs, ours = self._theirs(incoming), self._ours(rows)
        received = self._exchange(sent, ours, theirs, is_backward=True)
        return _transposed(received, (incoming.counts * self._widths.unsqueeze(1)).t())

    def _rows(self, incoming: Incoming) -> list[Tensor]:
        """Rows of the output that each part of all ranks returns."""
        assert incoming.outgoing.positions is not None
        of_streams = torch.split(incoming.outgoing.positions, incoming.sent)
        return [of_streams[stream] for stream in self._streams]

    def _sizes(self, rows: list[Tensor]) -> list[int]:
        """Values that each part of all ranks returns."""
        widths = (columns.stop - columns.start for columns in self._columns)
        return [len(at) * width for at, width in zip(rows, widths, strict=True)]

    def _theirs(self, incoming: Incoming) -> list[list[VectorBlock]]:
        """Of each rank: the vectors that this one returns to it, part after part."""
        widths = self._widths.tolist()
        return [
            [VectorBlock(count, (width,)) for count, width in zip(counts, widths, strict=True)]
            for counts in incoming.counts.t().tolist()
        ]

    def _ours(self, rows: list[Tensor]) -> list[list[VectorBlock]]:
        """Of each rank: the vectors that it returns to this one, part after part."""
        widths = (columns.stop - columns.start for columns in self._columns)
        blocks = [VectorBlock(len(at), (width,)) for at, width in zip(rows, widths, strict=True)]
        ends = accumulate(self._parts_of_rank, initial=0)
        return [blocks[first:end] for first, end in pairwise(ends)]


def _transposed(values: Tensor, sizes: Tensor) -> Tensor:
    """Segments of ``sizes`` ``(N, M)``, which stand row after row, column after column."""
    rows, columns = sizes.shape
    segments = torch.split(values, sizes.flatten().tolist())
    places = [row * columns + column for column in range(columns) for row in range(rows)]
    return torch.cat([values.new_empty(0), *(segments[place] for place in places)])
