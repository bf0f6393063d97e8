"""``SequenceDist`` returns vectors of ids to the ranks that sent the ids, and gradients back.

A rank returns the vectors of each rank's ids, part after part. The receiver writes them to the
places of the ids:

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
    """Exchanges vectors of ``dim`` columns for one collection that does not pool."""

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
        """Return the vectors of this rank's ids: float32 ``(ids of all lookups, dim)``; zeros for
        ids of -1. ``vectors`` is float32, flat: those of this rank's parts, part after part, rank
        after rank."""
        rows = self._rows(incoming)
        sent = _transpose_segments(vectors, incoming.counts * self._widths.unsqueeze(1))
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
        """Gradient of ``vectors``, as the mean over ranks."""
        gradient = gradient / self._env.world_size
        rows = self._rows(incoming)
        if self._is_whole:
            sent = gradient[torch.cat(rows)].flatten()
        else:
            blocks = zip(rows, self._columns, strict=True)
            sent = torch.cat([gradient[at, columns].flatten() for at, columns in blocks])
        theirs, ours = self._theirs(incoming), self._ours(rows)
        received = self._exchange(sent, ours, theirs, is_backward=True)
        return _transpose_segments(received, (incoming.counts * self._widths.unsqueeze(1)).t())

    def _rows(self, incoming: Incoming) -> list[Tensor]:
        """Rows of the output that each part of all ranks returns."""
        assert incoming.outgoing.positions is not None
        of_streams = torch.split(incoming.outgoing.positions, incoming.sent)
        return [of_streams[stream] for stream in self._streams]

    def _sizes(self, rows: list[Tensor]) -> list[int]:
        widths = (columns.stop - columns.start for columns in self._columns)
        return [len(at) * width for at, width in zip(rows, widths, strict=True)]

    def _theirs(self, incoming: Incoming) -> list[list[VectorBlock]]:
        """For each rank, the vectors that this rank returns to it, part after part."""
        widths = self._widths.tolist()
        return [
            [VectorBlock(count, (width,)) for count, width in zip(counts, widths, strict=True)]
            for counts in incoming.counts.t().tolist()
        ]

    def _ours(self, rows: list[Tensor]) -> list[list[VectorBlock]]:
        """For each rank, the vectors that it returns to this rank, part after part."""
        widths = (columns.stop - columns.start for columns in self._columns)
        blocks = [VectorBlock(len(at), (width,)) for at, width in zip(rows, widths, strict=True)]
        ends = accumulate(self._parts_of_rank, initial=0)
        return [blocks[first:end] for first, end in pairwise(ends)]


def _transpose_segments(values: Tensor, sizes: Tensor) -> Tensor:
    """Reorder segments of ``sizes`` ``(N, M)`` from row after row to column after column."""
    rows, columns = sizes.shape
    segments = torch.split(values, sizes.flatten().tolist())
    places = [row * columns + column for column in range(columns) for row in range(rows)]
    return torch.cat([values.new_empty(0), *(segments[place] for place in places)])
