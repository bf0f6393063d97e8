"""Checkpoints: the weights, and all that rebuilds the model around them.

<folder>/<step>/
  checkpoint.json        model name and arguments, schema, metrics
  ids/*.safetensors      vocabularies
  samples.safetensors    requests for the package's self-check
  state/                 the weights, torch.distributed.checkpoint
  training.json          only in checkpoints to resume from: progress of the run. Their state/ also
                         holds the state of the optimizers
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn

from embershard.errors import DataError, InputError, PackageError
from embershard.models import build_model
from embershard.package.files import sync, sync_tree
from embershard.package.input_specs import schema_from_json, schema_to_json
from embershard.package.samples import SampleRequest, read_samples, write_samples
from embershard.package.schema import Schema
from embershard.package.validation import parse_model
from embershard.sections import Section
from embershard.sharding.block_files import (
    Block,
    file_fault,
    read_blocks,
    read_saved,
    write_tensors,
)
from embershard.sharding.checkpoint import state_tensors
from embershard.sharding.environment import from_rank_0
from embershard.sharding.held_table import STATE as OPTIMIZER_STATE
from embershard.sharding.held_tables import group_of
from embershard.sharding.state_reads import check_shapes, saved_weights
from embershard.training.initial_model import meta_model
from embershard.training.mapped_tables import MappedTables

FORMAT_VERSION = 0
DOCUMENT = "checkpoint.json"
STATE_METADATA = ".metadata"
"""File in every folder that ``save_state`` wrote."""
IDS = "ids"
SAMPLES = "samples.safetensors"
STATE = "state"
TRAINING = "training.json"
PARTIAL, REPLACED = ".partial", ".old"
"""Suffixes of folders that are being written, and of replaced ones that are being deleted."""


class _Model(Section):
    name: str
    arguments: dict[str, Any]


class _Document(Section):
    """The content of checkpoint.json. `schema_from_json` reads the schema."""

    format_version: Annotated[int, Field(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    model: _Model
    inputs: Annotated[dict[str, Any], Field(alias="schema")]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    module: nn.Module
    schema: Schema
    samples: list[SampleRequest]
    metrics: Mapping[str, float]


def write_checkpoint(
    path: Path, module: nn.Module, contents: Contents, *, group: Any = None
) -> None:
    """Write a checkpoint beside its place and move it there whole, over an earlier one. All ranks
    of ``group`` call this; for None see ``save_state``. Raises OSError if the checkpoint cannot be
    written there, and DataError if ``path`` is a file or a link, or rank 0 cannot write
    ``contents``."""
    group = group_of(module, group)
    partial = start_checkpoint(path, contents, group=group)
    with _removed_on_error(partial, path):
        write_state(module, partial / STATE, group=group)
        from_rank_0(group, lambda: move_checkpoint(partial, path), error=DataError)


@contextmanager
def _removed_on_error(partial: Path, path: Path) -> Iterator[None]:
    """Remove ``partial`` if the block raises. An OSError names ``path``."""
    try:
        yield
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # A full disk names no path.
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A checkpoint without its weights. ``model`` has ``name`` and ``arguments`` for
    ``build_model``. ``samples`` are requests without outputs, at least one."""

    model: Mapping[str, Any]
    schema: Schema
    samples: Sequence[SampleRequest]
    metrics: Mapping[str, float]


def start_checkpoint(
    path: Path, contents: Contents, *, training: str | None = None, group: Any = None
) -> Path:
    """Write a checkpoint without its weights into a new folder next to ``path``, its later place.
    Every rank of ``group`` calls this, and rank 0 writes. ``training`` is the text of
    training.json. Returns the new folder, for ``move_checkpoint``. Raises DataError if ``path`` is
    a file or a link. If writing fails, raises OSError, or DataError with a group."""

    def start() -> Path:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise DataError(f"{path}: expected a folder or nothing, got a file or link")
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=path.parent))
        partial.chmod(0o755)  # mkdtemp's 0700 would hide it from other users.
        with _removed_on_error(partial, path):
            document = {
                "format_version": FORMAT_VERSION,
                "model": dict(contents.model),
                "schema": schema_to_json(contents.schema, partial / IDS),
                "metrics": dict(contents.metrics),
            }
            (partial / DOCUMENT).write_text(json.dumps(document, indent=1) + "\n")
            write_samples(partial / SAMPLES, contents.samples)
            if training is not None:
                (partial / TRAINING).write_text(training)
        return partial

    return from_rank_0(group, start, error=DataError)


def load_checkpoint(path: str | Path, *, mapped: MappedTables | None = None) -> Checkpoint:
    """Rebuild a model from its checkpoint. A model of one's own class is imported by its name.

    Args:
        path: folder of the checkpoint, or of several, of which the highest step is taken.
        mapped: keeps the tables in files if they do not fit in memory; None to keep them in memory.

    Raises:
        DataError: no checkpoint there, or a damaged one.
    """
    path = latest_checkpoint(path)
    file = str(path / DOCUMENT)
    try:
        document, _ = parse_model(_Document, (path / DOCUMENT).read_bytes(), file)
        schema = schema_from_json(document.inputs, path / IDS, file=f"{file}: schema")
        samples = read_samples(path / SAMPLES, file=str(path / SAMPLES))
    except OSError as error:
        raise DataError(file_fault(error, error.filename or path)) from error
    except PackageError as error:
        raise DataError(str(error)) from error
    try:
        if mapped is None:
            module = build_model(document.model.name, document.model.arguments, schema=schema)
        else:
            module, _ = meta_model(document.model.name, document.model.arguments, schema)
            mapped.place(module)
    except (InputError, TypeError, ValueError, RuntimeError) as error:  # Torch, for some sizes.
        raise DataError(f"{file}: {error}") from error
    load_state(module, path, mapped=mapped)
    return Checkpoint(module=module, schema=schema, samples=samples, metrics=document.metrics)


def load_state(module: nn.Module, path: str | Path, *, mapped: MappedTables | None = None) -> None:
    """Read a checkpoint's weights into a module of the same shape, in place. ``mapped`` holds
    tables of the module; None if all are in memory. Raises DataError for weights of other names or
    shapes, or a damaged folder."""
    read_state(module, Path(path) / STATE, mapped=mapped)


def latest_checkpoint(path: str | Path) -> Path:
    """``path`` if it is a checkpoint, else the one of the highest step in it. Raises DataError if
    there is neither."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"{path}: expected a checkpoint, but nothing is there")
    if (path / DOCUMENT).is_file():
        return path
    steps = checkpoints_in(path)
    if not steps:
        is_state = (path / STATE_METADATA).is_file()
        hint = "; this folder was written by save_state: pass --model FACTORY" if is_state else ""
        raise DataError(f"{path}: expected a checkpoint ({DOCUMENT}), found none{hint}")
    return steps[-1]


def checkpoints_in(folder: Path) -> list[Path]:
    """The checkpoints of a folder, in the order of their steps."""
    paths = [file.parent for file in folder.glob(f"*/{DOCUMENT}")]
    return sorted((path for path in paths if path.name.isdecimal()), key=lambda p: int(p.name))


def move_checkpoint(partial: Path, path: Path) -> None:
    """Move a checkpoint into place once all of it is on disk. The earlier one is moved away first,
    so that a reader never sees parts of both."""
    sync_tree(partial)
    old: Path | None = None
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=REPLACED, dir=path.parent))
        os.rename(path, old)  # rename(2) replaces an empty folder.
    os.rename(partial, path)
    sync(path.parent)
    if old is not None:
        shutil.rmtree(old)


def write_state(module: nn.Module, folder: Path, *, group: Any = None) -> None:
    """Write a module's weights into a new folder. For ``group`` None see ``save_state``."""
    group = group_of(module, group)
    tensors = state_tensors(module, group=group).items()
    weights = {key: tensor for key, tensor in tensors if not key.startswith(OPTIMIZER_STATE)}
    write_tensors(weights, folder, group=group)


def read_state(module: nn.Module, folder: Path, *, mapped: MappedTables | None = None) -> None:
    """Read weights into a module, in place, without a second copy of a table. Of tables in
    ``mapped``, at most a chunk is in memory. The folder's metadata is a pickle, so read only
    folders that you trust. Raises DataError for weights of other names or shapes, or a damaged
    folder."""
    state = module.state_dict()
    saved = saved_weights(read_saved(folder), state)
    check_state(module, {name: shape for name, (_, shape) in saved.items()}, where=folder)
    blocks = [Block.whole(saved[name][0], weight) for name, weight in state.items()]
    read_blocks(blocks, folder, after_chunk=mapped.release if mapped else None)


def check_state(
    module: nn.Module, shapes: Mapping[str, tuple[int, ...] | torch.Size | None], *, where: Path
) -> None:
    """Refuse weights that are not those of ``module``. ``shapes`` has the shape of each weight by
    name, or None if it is no tensor. Raises DataError, which names ``where``, for a name too many
    or too few, or another shape."""
    expected = {name: tuple(weight.shape) for name, weight in module.state_dict().items()}
    received = {name: None if shape is None else tuple(shape) for name, shape in shapes.items()}
    check_shapes(expected, received, kind=type(module).__name__, where=where)
