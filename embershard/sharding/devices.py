"""Checks the device of sharded training, and runs its inputs in a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from warnings import warn

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from embershard.errors import InputError
from embershard.kernels import device_of


def checked_device(device: torch.device | str, ranks: int) -> torch.device:
    """The device with its index; cpu has none. Warns if several ranks use cuda. Raises InputError
    if it is neither cpu nor the current CUDA device."""
    where = "DistributedModelParallel"
    try:
        parsed = device_of(device)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    if parsed.type == "cpu":
        return torch.device("cpu")
    current = torch.cuda.current_device()
    if parsed.index not in (None, current):
        raise InputError(
            f"{where}: device: expected cuda:{current}, the current device, got {parsed}; call "
            "torch.cuda.set_device first"
        )
    if ranks > 1:
        warn(
            "sharded training over several GPUs is experimental: embershard has run on one only",
            stacklevel=5,  # The caller of DistributedModelParallel, which calls agree().
        )
    return torch.device("cuda", current)


class InputStream:
    """Copies and exchanges a pipeline's inputs, on CUDA in a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        self._is_ready: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @contextmanager
    def entered(self, *, after_model: bool) -> Iterator[None]:
        """Run the block's device work in the stream. ``after_model`` makes it wait for the work
        that was submitted to the model's stream before."""
        if self._stream is None:
            yield
            return
        if after_model:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            yield

    def moved(self, batch: Any) -> Any:
        """Copy a batch to the device: tensors and objects with ``to`` and ``record_stream``, in
        lists, tuples and dictionaries. Other members are not copied."""
        if self._stream is None:
            return batch
        return tree_map(self._moved, batch, is_leaf=_is_movable)

    def mark(self) -> None:
        """Make ``leave`` wait for all work that was submitted to the stream so far."""
        if self._stream is not None:
            self._is_ready = self._stream.record_event()

    def leave(self, batch: Any, tensors: Iterable[Tensor | None]) -> None:
        """Let the model's stream use a batch, and ``tensors`` that existed at the last ``mark``."""
        if self._is_ready is None:
            return
        model = torch.cuda.current_stream(self._device)
        model.wait_event(self._is_ready)
        for member in (*tree_leaves(batch, is_leaf=_is_movable), *tensors):
            if _is_movable(member):
                member.record_stream(model)

    def _moved(self, member: Any) -> Any:
        if not _is_movable(member):
            return member
        return member.to(device=self._device, non_blocking=True)


def _is_movable(member: object) -> bool:
    return hasattr(member, "record_stream")
