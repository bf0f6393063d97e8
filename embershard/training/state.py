"""A module's weights as a folder of torch.distributed.checkpoint, with nothing beside them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from embershard.sharding.block_files import read_blocks, read_saved, write_blocks
from embershard.sharding.block_planners import Block
from embershard.sharding.checkpoint import state_blocks
from embershard.sharding.held_tables import STATE, group_of
from embershard.sharding.state_reads import check_shapes, saved_weights
from embershard.training.mapped_tables import MappedTables


def write_state(module: nn.Module, folder: Path, *, group: Any = None) -> None:
    """Write a module's weights into a new folder. ``group``: the ranks; None: as for
    ``save_state``."""
    group = group_of(module, group)
    blocks = state_blocks(module, group=group)
    write_blocks((each for each in blocks if not each.key.startswith(STATE)), folder, group=group)


def read_state(module: nn.Module, folder: Path, *, mapped: MappedTables | None = None) -> None:
    """Read weights into a module, in place: never a second copy of a table, nor of those that
    ``mapped`` holds more than a chunk in memory.

    The folder's metadata is a pickle, so read only what you trust, as with torch.load.

    Raises:
        DataError: weights of other names or shapes, or a damaged folder.
    """
    state = module.state_dict()
    given = saved_weights(read_saved(folder), state)
    check_state(module, {name: shape for name, (_, shape) in given.items()}, where=folder)
    blocks = [Block.whole(given[name][0], each) for name, each in state.items()]
    read_blocks(blocks, folder, after_chunk=mapped.release if mapped else None)


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
