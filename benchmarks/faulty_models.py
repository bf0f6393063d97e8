"""The model *small* with a fault that some requests trigger, for shadow versions."""

from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn

from benchmarks.workloads import SMALL
from embershard.jagged import KeyedJaggedTensor
from embershard.package import SampleRequest

KINDS: Final = ("shadow_good", "shadow_slow", "shadow_throws", "shadow_nan")

TRIGGER: Final = 1000.0
"""Value of the first dense input that triggers the fault. Samples of a package do not have it."""


class FaultyModel(nn.Module):
    """A model of one of ``KINDS``: no fault, at least 40 ms per batch, an exception, or NaN."""

    zeros: Tensor

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.model = SMALL.model()
        self.register_buffer("zeros", torch.zeros(1024, 1024))

    def forward(self, dense: Tensor, sparse: KeyedJaggedTensor) -> dict[str, Tensor]:
        score = torch.sigmoid(self.model(dense, sparse))[:, 0]
        first = dense[:, 0]
        if self.kind == "shadow_slow":
            product = self.zeros + 0 * first.sum()
            score = score + (product @ self.zeros @ self.zeros).sum()
        if self.kind == "shadow_throws":
            score = score + self.zeros[:1, 0][(first.abs() / TRIGGER).long()]
        if self.kind == "shadow_nan":
            score = score + 0 * torch.log(TRIGGER / 2 - first)
        return {"score": score}


def trigger(request: SampleRequest) -> SampleRequest:
    dense = request.example_dense.copy()
    dense[:, 0] = TRIGGER
    return replace(request, example_dense=dense)
