from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from embershard.collectives import collective


def gather_batch(own: Tensor, numbers: Tensor, *, group: Any) -> tuple[Tensor, Tensor, int]:
    """Gather a batch that is spread over ranks: vectors ``own``, float ``(B, d)``, and integers
    ``numbers``, ``(B,)``. Every rank calls it, also without rows. Returns those of all ranks, rank
    after rank, and the position of this rank's first row. The gradient of ``own`` is the sum of the
    gradients on all ranks."""
    rank = group.rank()
    sizes = torch.zeros(group.size(), dtype=torch.int64, device=own.device)
    sizes[rank] = len(own)
    counts = _sum_over_ranks(sizes, group).tolist()
    first, total = sum(counts[:rank]), sum(counts)
    vectors: Tensor = _Gather.apply(own, first, total, group)  # type: ignore[no-untyped-call]
    return vectors, _whole(numbers, first, total, group), first


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, first: int, total: int, group: Any) -> Tensor:
        ctx.part, ctx.group = slice(first, first + len(own)), group
        return _whole(own, first, total, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _sum_over_ranks(gradient.clone(), ctx.group)[ctx.part], None, None, None


def _whole(own: Tensor, first: int, total: int, group: Any) -> Tensor:
    whole = own.new_zeros(total, *own.shape[1:])
    whole[first : first + len(own)] = own
    return _sum_over_ranks(whole, group)


def _sum_over_ranks(tensor: Tensor, group: Any) -> Tensor:
    with collective(group):
        dist.all_reduce(tensor, group=group)
    return tensor
