"""The transforms of a schema's dense inputs, in torch. Each operation takes all columns at once, so
that many inputs cost little more than one."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import final

import torch
from torch import Tensor, nn

from embershard.package.schema import Schema, Scope
from embershard.package.transforms import Bucketize, Clip, Log1p, Standardize, Transform


@final
class DenseTransforms(nn.Sequential):
    """Turns raw dense values into those that a model sees.

    Both are float32 ``[B, F]``, with columns in ``schema.dense`` order; a column depends only on
    itself. Without transforms the module returns its argument. It has no state and no parameters.

    Args:
        scope: the scope of the columns; both scopes if None.
    """

    def __init__(self, schema: Schema, scope: Scope | None = None) -> None:
        super().__init__()
        inputs = [item for item in schema.dense if scope in (None, item.scope)]
        for step in zip_longest(*(item.transforms for item in inputs)):
            kinds = {type(transform) for transform in step}
            self.extend(module(step) for kind, module in _MODULES.items() if kind in kinds)


Step = Sequence[Transform | None]
"""The next transform of each column, or None if the column has no more."""


class _Log1p(nn.Module):
    chosen: Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.register_buffer("chosen", _chosen(step, Log1p), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.chosen, torch.log1p(x), x)


class _Clip(nn.Module):
    bounds: Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        bounds = [
            (clip.low, clip.high) if isinstance(clip, Clip) else (-torch.inf, torch.inf)
            for clip in step
        ]
        self.register_buffer("bounds", torch.tensor(bounds).T, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(x, self.bounds[0], self.bounds[1])


class _Standardize(nn.Module):
    terms: Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        terms = [
            (scale.mean, scale.deviation) if isinstance(scale, Standardize) else (0.0, 1.0)
            for scale in step
        ]
        self.register_buffer("terms", torch.tensor(terms).T, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.terms[0]) / self.terms[1]


class _Bucketize(nn.Module):
    boundaries: Tensor
    chosen: Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        rows = [buckets.boundaries if isinstance(buckets, Bucketize) else () for buckets in step]
        boundaries = torch.full((len(rows), max(map(len, rows))), torch.inf)
        for row, numbers in zip(boundaries, rows, strict=True):
            row[: len(numbers)] = torch.tensor(numbers)
        self.register_buffer("boundaries", boundaries, persistent=False)
        self.register_buffer("chosen", _chosen(step, Bucketize), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        index = torch.searchsorted(self.boundaries, x.t().contiguous(), right=True)
        return torch.where(self.chosen & torch.isfinite(x), index.t().to(x.dtype), x)


_MODULES = {Log1p: _Log1p, Clip: _Clip, Standardize: _Standardize, Bucketize: _Bucketize}


def _chosen(step: Step, kind: type[Transform]) -> Tensor:
    return torch.tensor([isinstance(transform, kind) for transform in step])
