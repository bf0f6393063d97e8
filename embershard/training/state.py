"""A module's weights as a folder of torch.distributed.checkpoint, by one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from embershard.sharding.block_files import Block, read_blocks, read_saved, write_blocks
from embershard.sharding.checkpoint import check_shapes, saved_weights

__all__ = ["check_state", "read_state", "write_state"]


def write_state(module: nn.Module, folder: Path) -> None:
    """Write a module's state dict.

    Raises:
        OSError: the disk is full, say.
    """
    write_blocks((Block.whole(name, each) for name, each in module.state_dict().items()), folder)


def read_state(module: nn.Module, folder: Path) -> None:
    """Read weights into a module, in place: never a second copy of a table.

    The folder's metadata is a pickle, so read only what you trust, as with torch.load.

    Raises:
        DataError: weights of other names or shapes, or a damaged folder.
    """
    state = module.state_dict()
    given = saved_weights(read_saved(folder), state)
    check_state(module, {name: shape for name, (_, shape) in given.items()}, where=folder)
    read_blocks((Block.whole(given[name][0], each) for name, each in state.items()), folder)


def check_state(
    module: nn.Module, given: Mapping[str, tuple[int, ...] | torch.Size | None], *, where: Path
) -> None:
    """Refuse weights that are another module's.

    Args:
        module: that they are meant for.
        given: the shape of each by name; None: it is no tensor.
        where: they come from, for the message.

    Raises:
        DataError: a name too many or too few, or another shape.
    """
    expected = {name: tuple(each.shape) for name, each in module.state_dict().items()}
    shapes = {name: None if each is None else tuple(each) for name, each in given.items()}
    check_shapes(expected, shapes, kind=type(module).__name__, where=where)
