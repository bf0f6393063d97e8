"""Packages whose dense program does not end: for one input, or while it is loaded. As its loop
begins, torch writes LOOP_BEGINS to standard error."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from tests.serving.models import seal
from tests.serving.versions import STEP, publish

ENDLESS_PRICE = -12345.0
"""No sample has it."""

LOOP_BEGINS = "the loop begins"


class EndlessForOnePrice(nn.Module):
    """Scores as `tests.serving.versions.Telling`, but loops where a price is ENDLESS_PRICE."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.offset = STEP * version
        self.endless_price = ENDLESS_PRICE

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        prices = example_inputs[0]
        turns = 0
        if bool((prices == self.endless_price).any()):
            warnings.warn("the loop begins", stacklevel=1)
        while bool((prices == self.endless_price).any()):
            turns += 1
        return {"score": prices[:, 0] + example_inputs[1].sum(dim=1) + self.offset + 0 * turns}


class EndlessForAny(EndlessForOnePrice):
    """Loops whatever it is given: its samples never end."""

    def forward(
        self, request_inputs: list[Tensor], example_inputs: list[Tensor], request_of_example: Tensor
    ) -> dict[str, Tensor]:
        prices = example_inputs[0]
        turns = 0
        warnings.warn("the loop begins", stacklevel=1)
        while bool((prices == prices).any()):
            turns += 1
        return {"score": prices[:, 0] + 0 * turns}


def publish_endless(repository: Path, version: int, module: type[EndlessForOnePrice]) -> Path:
    """``<repository>/ranker/<version>``, whose dense program is `module`."""
    package = publish(repository, version)
    with warnings.catch_warnings():
        # torch deprecates TorchScript; it is what the programs are.
        warnings.filterwarnings("ignore", message=r".*torch\.jit\..* is (deprecated|not supported)")
        torch.jit.script(module(version)).save(str(package / "programs" / "dense.pt"))
    return seal(package, json.loads((package / "manifest.json").read_text()))
