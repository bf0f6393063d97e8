"""Pooled vectors back to the ranks that asked; their gradients the same way in reverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from embershard.sharding.environment import ShardingEnv
from embershard.sharding.layout import Layout

__all__ = ["OutputDist", "distribute"]


class OutputDist:
    """The exchange of one collection.

    Args:
        layout: of the collection.
        env: the ranks.
    """

    def __init__(self, layout: Layout, env: ShardingEnv) -> None:
        self.layout, self.env = layout, env
        self.dims = [layout.dim_of(rank) for rank in range(env.world_size)]
        self._means = [lookup for lookup in layout.lookups if lookup.is_mean]
        self._mean_places = [at for at, lookup in enumerate(layout.lookups) if lookup.is_mean]

    def forward(self, pooled: Tensor, examples: Sequence[int], divisors: Tensor) -> Tensor:
        """
        Args:
            pooled: float32 ``(sum(examples), columns of this rank's parts)``.
            examples: of each rank.
            divisors: float32 ``(B, mean lookups)``.

        Returns:
            float32 ``(B, layout.dim)``.
        """
        blocks = self._exchange(pooled.contiguous(), examples, backward=False)
        own = examples[self.env.rank]
        partial = self.layout.is_partial
        output = (torch.zeros if partial else torch.empty)(own, self.layout.dim)
        # In the order of ranks: the sums do not depend on which one answers first.
        for block, copies in zip(blocks, self.layout.copies, strict=True):
            for source, target, width in copies:
                part = block[:, source : source + width]
                place = output[:, target : target + width]
                if partial:
                    place += part
                else:
                    place.copy_(part)
        self._divide(output, divisors)
        return output

    def backward(self, gradient: Tensor, examples: Sequence[int], divisors: Tensor) -> Tensor:
        """Of ``forward``'s output to that of ``pooled``, as the mean over ranks."""
        gradient = gradient / self.env.world_size
        self._divide(gradient, divisors)
        own = examples[self.env.rank]
        sent = gradient.new_empty(own * sum(self.dims))
        blocks = torch.split(sent, [own * dim for dim in self.dims])
        for block, dim, copies in zip(blocks, self.dims, self.layout.copies, strict=True):
            for source, target, width in copies:
                block.view(own, dim)[:, source : source + width] = gradient[
                    :, target : target + width
                ]
        (received,) = self._exchange(sent, examples, backward=True)
        return received

    def divisors(self, lengths: Tensor) -> Tensor:
        """float32 ``(B, mean lookups)``, from the lengths ``(lookups, B)``."""
        return lengths[self._mean_places].t().clamp(min=1).float()

    def _divide(self, vectors: Tensor, divisors: Tensor) -> None:
        for place, lookup in enumerate(self._means):
            vectors[:, slice(*lookup.columns)] /= divisors[:, place : place + 1]

    def _exchange(self, sent: Tensor, examples: Sequence[int], *, backward: bool) -> list[Tensor]:
        rank = self.env.rank
        own_dim, own = self.dims[rank], examples[rank]
        theirs = [count * own_dim for count in examples]
        ours = [own * dim for dim in self.dims]
        ingoing, outgoing = (theirs, ours) if backward else (ours, theirs)
        received = sent.new_empty(sum(ingoing))
        dist.all_to_all_single(
            received, sent.view(-1), ingoing, outgoing, group=self.env.output_group
        )
        if backward:
            return [received.view(sum(examples), own_dim)]
        return [
            part.view(own, dim)
            for part, dim in zip(torch.split(received, ingoing), self.dims, strict=True)
        ]


def distribute(
    pooled: Tensor, exchange: OutputDist, examples: Sequence[int], lengths: Tensor
) -> Tensor:
    """The output of all lookups of this rank's batch; see ``OutputDist.forward``.

    Args:
        pooled: requires a gradient, on ranks without tables too: every rank enters the collective
            of backward.
        exchange: of the collection.
        examples: of each rank.
        lengths: int64 ``(lookups, B)``.
    """
    output: Tensor = _Distribute.apply(  # type: ignore[no-untyped-call]
        pooled, exchange, examples, exchange.divisors(lengths)
    )
    return output


class _Distribute(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, pooled: Tensor, exchange: OutputDist, examples: Sequence[int], divisors: Tensor
    ) -> Tensor:
        ctx.exchange, ctx.examples, ctx.divisors = exchange, examples, divisors
        return exchange.forward(pooled, examples, divisors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.exchange.backward(gradient, ctx.examples, ctx.divisors), None, None, None
