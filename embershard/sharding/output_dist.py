"""``OutputDist`` returns pooled vectors to the ranks of their examples, and gradients back.

Step 1 is an all-to-all of all ranks. If hosts sum some columns, step 2 is an all-to-all of the
ranks with the same place on their hosts; see ``routes``.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from embershard.sharding.environment import ShardingEnv
from embershard.sharding.host_exchange import HostExchange, add_columns, gather_columns
from embershard.sharding.layout import Copy, Layout
from embershard.sharding.routes import Columns, build_routes
from embershard.sharding.vector_exchange import (
    QCommsConfig,
    VectorBlock,
    exchange_vectors,
    split_blocks,
)


class OutputDist:
    def __init__(
        self, layout: Layout, env: ShardingEnv, comms: QCommsConfig, *, all_shared: bool = False
    ) -> None:
        self.layout, self.env = layout, env
        self._exchange = partial(exchange_vectors, group=env.output_group, comms=comms)
        self._routes = build_routes(layout, env.local_size, all_shared=all_shared)
        self._hosts: HostExchange | None = None
        """Exchanges sums between hosts. None: no columns are summed inside hosts."""
        if any(columns.widths for columns in self._routes.sums):  # The same on every rank.
            self._hosts = HostExchange(env, comms, self._routes.sums)
        self._local = env.local_size or env.world_size
        # Used without sums: place in the output, and the rank and columns that it comes from.
        self._pieces = sorted(
            (copy.target, rank, copy.source, copy.width)
            for rank, columns in enumerate(self._routes.direct)
            for copy in columns.copies
        )
        # True if every rank returns a part of all columns, such as row ranges.
        whole = (Copy(0, 0, layout.dim),)
        self._is_whole = len(layout.parts) > 1 and all(
            columns.copies == whole for columns in self._routes.direct
        )
        self._means = [lookup for lookup in layout.lookups if lookup.is_mean]
        mean_places = [at for at, lookup in enumerate(layout.lookups) if lookup.is_mean]
        self._mean_places = torch.tensor(mean_places, dtype=torch.int64, device=env.device)

    def forward(self, pooled: Tensor, examples: Sequence[int], divisors: Tensor) -> Tensor:
        """Return the vectors of this rank's examples, float32 ``(B, layout.dim)``. ``pooled`` is
        float32 ``(sum(examples), columns of this rank's parts)``, and ``divisors`` is float32
        ``(B, mean lookups)``. ``examples``: number of examples of each rank."""
        rank, routes = self.env.rank, self._routes
        blocks = self._exchange_direct(self._outgoing(pooled, examples), examples)
        if not self.layout.is_partial:
            direct = [block for block, *_ in blocks]
            pieces = [direct[at][:, first : first + width] for _, at, first, width in self._pieces]
            output = torch.cat(pieces, dim=1)
            self._divide(output, divisors)
            return output
        if self._is_whole:
            (first, *_), (second, *_), *others = blocks
            output = first + second
            for block, *_ in others:
                output += block
            self._divide(output, divisors)
            return output
        output = pooled.new_zeros(examples[rank], self.layout.dim)
        # In the order of ranks, so that rounding does not depend on which rank answers first.
        for (block, *_), columns in zip(blocks, routes.direct, strict=True):
            add_columns(output, block, columns.copies)
        if self._hosts is not None:
            self._hosts.to_ranks(self._host_sums(blocks, examples), examples, output=output)
        self._divide(output, divisors)
        return output

    def backward(self, gradient: Tensor, examples: Sequence[int], divisors: Tensor) -> Tensor:
        """Gradient of ``pooled``, as the mean over ranks."""
        gradient = gradient / self.env.world_size
        self._divide(gradient, divisors)
        of_sums = None if self._hosts is None else self._hosts.to_hosts(gradient, examples)
        return self._to_holders(gradient, of_sums, examples)

    def _to_holders(
        self, gradient: Tensor, of_sums: Tensor | None, examples: Sequence[int]
    ) -> Tensor:
        """Reverse of step 1, from the gradients of this rank's direct columns and of its host's
        sums."""
        rank, routes, relayed = self.env.rank, self._routes, tuple[Tensor, ...]()
        if self._hosts is not None and of_sums is not None:
            relayed = torch.split(of_sums, self._hosts.rows(examples))
        parts = list[tuple[Tensor, Columns]]()
        for to, columns in enumerate(routes.direct):
            parts.append((gradient, columns))
            if to // self._local == rank // self._local:
                parts += [(block, routes.shared[to]) for block in relayed]
        theirs, ours = self._direct_blocks(examples)
        flat = self._exchange(gather_columns(parts), ours, theirs, is_backward=True)
        own = routes.direct[rank], routes.shared[rank]
        if not own[1].widths:
            return flat.view(sum(examples), own[0].dim)
        gradients = gradient.new_empty(sum(examples), self.layout.dim_of(rank))
        rows = torch.split(gradients, list(examples))
        for source, (block, *shared) in enumerate(split_blocks(flat, theirs)):
            _scatter(rows[source], block, own[0])
            for relayed_rank, of_shared in zip(self._relayed_by(source), shared, strict=True):
                _scatter(rows[relayed_rank], of_shared, own[1])
        return gradients

    def divisors(self, lengths: Tensor, examples: Sequence[int]) -> Tensor:
        """float32 ``(B, mean lookups)``, from the lengths ``(lookups, B)`` of this rank's batch."""
        return lengths.index_select(0, self._mean_places).t().clamp(min=1).float()

    def _host_sums(self, blocks: Sequence[Sequence[Tensor]], examples: Sequence[int]) -> Tensor:
        """Sums of this host for the ranks that this one relays to, rank after rank."""
        rank, routes = self.env.rank, self._routes
        dim, relayed = routes.sums[rank // self._local].dim, self._relayed_by(rank)
        sums = [blocks[0][0].new_zeros(examples[relayed_rank], dim) for relayed_rank in relayed]
        for (_, *shared), columns in zip(blocks, routes.shared, strict=True):
            for place, block in zip(sums, shared, strict=bool(shared)):
                add_columns(place, block, columns.copies)
        return torch.cat(sums)

    def _relayed_by(self, rank: int) -> list[int]:
        """Ranks whose sums ``rank`` adds up, if it is on this host; otherwise none."""
        if self._hosts is None or rank // self._local != self.env.rank // self._local:
            return []
        return list(range(rank % self._local, self.env.world_size, self._local))

    def _divide(self, vectors: Tensor, divisors: Tensor) -> None:
        for place, lookup in enumerate(self._means):
            vectors[:, slice(*lookup.columns)] /= divisors[:, place : place + 1]

    def _outgoing(self, pooled: Tensor, examples: Sequence[int]) -> Tensor:
        """``pooled`` in the order in which step 1 sends it."""
        direct, shared = self._routes.direct[self.env.rank], self._routes.shared[self.env.rank]
        if not shared.widths:
            return pooled.reshape(-1)
        rows, parts = torch.split(pooled, list(examples)), list[Tensor]()
        for to in range(len(examples)):
            parts.append(_select(rows[to], direct))
            parts += [_select(rows[relayed_rank], shared) for relayed_rank in self._relayed_by(to)]
        return torch.cat([part.flatten() for part in parts])

    def _exchange_direct(self, values: Tensor, examples: Sequence[int]) -> list[list[Tensor]]:
        """Run step 1. Returns the blocks that this rank received, by sending rank.

        The first block has the columns that go straight into this rank's output. From ranks of
        this host more blocks follow, one for each rank to which this one relays sums.
        """
        theirs, ours = self._direct_blocks(examples)
        flat = self._exchange(values, theirs, ours, is_backward=False)
        return split_blocks(flat, ours)

    def _direct_blocks(
        self, examples: Sequence[int]
    ) -> tuple[list[list[VectorBlock]], list[list[VectorBlock]]]:
        """Blocks that this rank sends to each rank in step 1, and receives from each."""
        rank, routes = self.env.rank, self._routes
        direct, shared = routes.direct[rank].widths, routes.shared[rank].widths
        theirs = [
            [
                VectorBlock(examples[to], direct),
                *(
                    VectorBlock(examples[relayed_rank], shared)
                    for relayed_rank in self._relayed_by(to)
                ),
            ]
            for to in range(len(examples))
        ]
        ours = list[list[VectorBlock]]()
        for source in range(len(examples)):
            is_local = source // self._local == rank // self._local
            relayed = self._relayed_by(rank) if is_local else []
            ours.append(
                [
                    VectorBlock(examples[rank], routes.direct[source].widths),
                    *(
                        VectorBlock(examples[relayed_rank], routes.shared[source].widths)
                        for relayed_rank in relayed
                    ),
                ]
            )
        return theirs, ours


def _select(rows: Tensor, columns: Columns) -> Tensor:
    if columns.dim == rows.shape[1]:
        return rows
    parts = [rows[:, copy.source : copy.source + copy.width] for copy in columns.sources]
    return torch.cat(parts, dim=1) if parts else rows[:, :0]


def _scatter(rows: Tensor, block: Tensor, columns: Columns) -> None:
    for copy in columns.sources:
        rows[:, copy.source : copy.source + copy.width] = block[
            :, copy.target : copy.target + copy.width
        ]
