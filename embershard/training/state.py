"""A module's weights as a folder of torch.distributed.checkpoint, written by one process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from embershard.errors import DataError

__all__ = ["check_state", "read_state", "write_state"]

# Of weights that do not fit, in a message.
NAMES_SHOWN = 3


def write_state(module: nn.Module, folder: Path) -> None:
    """Write a module's state dict.

    Raises:
        OSError: the disk is full, say.
    """
    try:
        with _one_process():
            state_dict_saver.save(module.state_dict(), checkpoint_id=folder, no_dist=True)
    except CheckpointException as error:
        for failure in _failures(error):
            if isinstance(failure, OSError):
                raise OSError(failure.errno, failure.strerror, str(folder)) from error
        raise


def read_state(module: nn.Module, folder: Path) -> None:
    """Read weights into a module, in place: never a second copy of a table.

    The folder's metadata is a pickle, so read only what you trust, as with torch.load.

    Raises:
        DataError: weights of other names or shapes, or a damaged folder.
    """
    check_state(module, _shapes(folder), where=folder)
    try:
        with _one_process():
            state_dict_loader.load(module.state_dict(), checkpoint_id=folder, no_dist=True)
    except (CheckpointException, Exception) as error:  # Damaged files fail in many ways.
        failure = _failures(error)[0]
        said = str(failure).partition("\n")[0] or "no more said"
        raise DataError(
            f"{folder}: expected the model's weights, got {type(failure).__name__}: {said}"
        ) from error


def check_state(module: nn.Module, given: Mapping[str, torch.Size | None], *, where: Path) -> None:
    """Refuse weights that are another module's.

    Args:
        module: that they are meant for.
        given: the shape of each by name; None: it is no tensor.
        where: they come from, for the message.

    Raises:
        DataError: a name too many or too few, or another shape.
    """
    expected = module.state_dict()
    missing, unexpected = expected.keys() - given.keys(), given.keys() - expected.keys()
    if missing or unexpected:
        problems = [
            f"{word} {_few(names)}"
            for word, names in (("no", sorted(missing)), ("unknown", sorted(unexpected)))
            if names
        ]
        raise DataError(
            f"{where}: expected the {len(expected)} weights of {type(module).__name__}, "
            f"got {' and '.join(problems)}"
        )
    for name, shape in given.items():
        own = getattr(expected[name], "shape", None)
        if own != shape:
            raise DataError(f"{where}: {name}: expected shape {_text(own)}, got {_text(shape)}")


def _failures(error: BaseException) -> list[BaseException]:
    """What failed in this process, and what that came from; not empty."""
    ranks = error.failures if isinstance(error, CheckpointException) else {}
    failure: BaseException | None = next((each for each, _ in ranks.values()), error)
    found = list[BaseException]()
    while failure is not None:
        found.append(failure)
        failure = failure.__cause__ or failure.__context__
    return found


def _shapes(folder: Path) -> dict[str, torch.Size | None]:
    try:
        metadata = FileSystemReader(folder).read_metadata()
    except Exception as error:  # It is a pickle: damaged, it fails in many ways.
        raise DataError(
            f"{folder}: expected the metadata of a state, got {type(error).__name__}: {error}"
        ) from error
    return {
        name: each.size if isinstance(each, TensorStorageMetadata) else None
        for name, each in metadata.state_dict_metadata.items()
    }


def _few(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _text(shape: torch.Size | None) -> str:
    return "no tensor" if shape is None else str(tuple(shape))


@contextmanager
def _one_process() -> Iterator[None]:
    # Saving and loading without a process group is meant; torch remarks on it each time.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch.distributed is (disabled|unavailable)")
        warnings.filterwarnings("ignore", message=r".*TypedStorage is deprecated")
        yield
