"""Torch's operators by the schemas that TorchScript names them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["operator_of"]


def operator_of(schema: str) -> Callable[..., Any] | None:
    """The operator ``aten::add.Tensor(Tensor self, ...) -> Tensor``; None where there is none."""
    name, _, overload = schema.partition("(")[0].partition(".")
    room, _, plain = name.partition("::")
    packet = getattr(getattr(torch.ops, room), plain, None)
    found: Callable[..., Any] | None = getattr(packet, overload or "default", None)
    return found
