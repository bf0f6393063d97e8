"""``HostExchange`` sends columns from the hosts that have them to the ranks of the examples."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from embershard.sharding.environment import ShardingEnv
from embershard.sharding.layout import Copy
from embershard.sharding.routes import Columns
from embershard.sharding.vector_exchange import (
    QCommsConfig,
    VectorBlock,
    exchange_vectors,
    split_blocks,
)


class HostExchange:
    """All-to-all between the ranks with the same place on their hosts. Each of them has the columns
    of its host, for the batches of all of them. ``columns`` has the columns of each host."""

    def __init__(self, env: ShardingEnv, comms: QCommsConfig, columns: Sequence[Columns]) -> None:
        assert env.local_size is not None
        self._rank, self._columns = env.rank, columns
        self._own = columns[env.rank // env.local_size]
        self._ranks = range(env.rank % env.local_size, env.world_size, env.local_size)
        self._exchange = partial(exchange_vectors, group=env.cross_group, comms=comms)

    def rows(self, examples: Sequence[int]) -> list[int]:
        """Examples of each rank with which this one exchanges vectors."""
        return [examples[rank] for rank in self._ranks]

    def forward(self, values: Tensor, examples: Sequence[int]) -> Tensor:
        """Returns the output of ``to_ranks``. Hosts must have different columns."""
        width = sum(columns.dim for columns in self._columns)
        output = values.new_zeros(examples[self._rank], width)
        self.to_ranks(values, examples, output=output)
        return output

    def backward(self, gradient: Tensor, examples: Sequence[int]) -> Tensor:
        """Gradient of ``forward``'s values, as the mean over hosts."""
        return self.to_hosts(gradient / len(self._columns), examples)

    def to_ranks(self, values: Tensor, examples: Sequence[int], *, output: Tensor) -> None:
        """Add all columns of this rank's examples to ``output``, float32 ``(B, columns)``.
        ``values`` is float32 ``(sum(rows(examples)), columns of this host)``, ``examples`` has the
        examples of each rank."""
        sent, received = self._blocks(examples)
        flat = self._exchange(values.flatten(), sent, received, is_backward=False)
        for (block,), columns in zip(split_blocks(flat, received), self._columns, strict=True):
            add_columns(output, block, columns.copies)

    def to_hosts(self, output: Tensor, examples: Sequence[int]) -> Tensor:
        """Reverse of ``to_ranks``: float32 ``(sum(rows(examples)), columns of this host)`` from the
        columns of all ranks' outputs."""
        sent, received = self._blocks(examples)
        flat = gather_columns([(output, columns) for columns in self._columns])
        flat = self._exchange(flat, received, sent, is_backward=True)
        return flat.view(sum(self.rows(examples)), self._own.dim)

    def _blocks(
        self, examples: Sequence[int]
    ) -> tuple[list[list[VectorBlock]], list[list[VectorBlock]]]:
        sent = [[VectorBlock(rows, self._own.widths)] for rows in self.rows(examples)]
        own = examples[self._rank]
        return sent, [[VectorBlock(own, columns.widths)] for columns in self._columns]


def gather_columns(items: Sequence[tuple[Tensor, Columns]]) -> Tensor:
    """Reverse of ``add_columns``: columns of vectors, block after block."""
    sizes = [len(vectors) * columns.dim for vectors, columns in items]
    flat = items[0][0].new_empty(sum(sizes))
    for (vectors, columns), part in zip(items, torch.split(flat, sizes), strict=True):
        block = part.view(len(vectors), columns.dim)
        pieces = [vectors[:, target : target + width] for _, target, width in columns.copies]
        if pieces:
            torch.cat(pieces, dim=1, out=block)
    return flat


def add_columns(sums: Tensor, block: Tensor, copies: Sequence[Copy]) -> None:
    for source, target, width in copies:
        sums[:, target : target + width] += block[:, source : source + width]
