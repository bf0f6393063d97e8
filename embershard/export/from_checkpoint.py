"""Exports weights on disk: a checkpoint of ours, or any state dict with a factory of its module."""

import importlib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from embershard.errors import DataError, ExportError, InputError
from embershard.export.exporter import ExportProgress, export_model
from embershard.export.prune import PrunedTable, prunable_counts, prune_rows
from embershard.export.tables import Weights
from embershard.export.trace import uncompiled_name
from embershard.package.files import room_needed
from embershard.package.schema import Schema
from embershard.sharding.held_tables import read_access_counts
from embershard.sharding.state_reads import WRAPPERS, wrapper_prefix
from embershard.training import (
    MappedTables,
    check_state,
    latest_checkpoint,
    load_checkpoint,
    load_state,
)
from embershard.training.checkpoint import STATE, STATE_METADATA, read_state

PICKLED = (".pt", ".pth", ".bin")


def export_checkpoint(
    path: str | Path,
    out: str | Path,
    *,
    weights: Weights = "int8",
    dense_dtype: str = "fp32",
    devices: str = "1xcpu",
    plan: str = "table",
    model: str | None = None,
    min_accesses: int | None = None,
    pruned: Callable[[Mapping[str, PrunedTable]], None] = lambda _: None,
    progress: Callable[[ExportProgress], None] | None = None,
) -> Path:
    """Export a checkpoint; see `export_model`.

    Args:
        path: folder of a checkpoint, or of several checkpoints, of which the highest step is
            exported. With ``model`` also a folder of ``save_state``, or a file with a state dict:
            ``.safetensors``, or ``.pt`` of torch.save, which is read with weights_only=True. A
            dict in the file may have the state dict as its entry ``model`` or ``state_dict``.
        out: ``<repository>/<model>/<version>``.
        weights, dense_dtype, devices, plan: arguments of `export_model`.
        model: ``package.module:factory``, where ``factory()`` returns the module and its schema.
            The weights at ``path`` replace the module's. Tables that it creates on device meta are
            read in chunks, like those of a checkpoint, and need space only on the disk of ``out``.
            None: ``path`` is a checkpoint, which describes its module.
        min_accesses: leave out rows with fewer lookups in training; see ``prune_rows``. The
            checkpoint must have counts (``training.count_accesses``). Tables with hashed ids keep
            all rows. None: all tables do.
        pruned: called with the rows that were left out, by table.
        progress: called while rows are written.

    Returns:
        ``out``.

    Raises:
        DataError: ``path`` has no checkpoint or state dict, a damaged one, or one of another
            module.
        ExportError: the factory cannot be used, or for the reasons of `export_model`.
    """
    path = Path(path)
    existing = next(parent for parent in Path(out).absolute().parents if parent.is_dir())
    with room_needed(Path(out)), TemporaryDirectory(prefix=".export.", dir=existing) as folder:
        mapped = MappedTables(folder)  # Tables are read into files, and may exceed memory.
        if model is None:
            checkpoint = load_checkpoint(path, mapped=mapped)
            module, schema, samples = checkpoint.module, checkpoint.schema, checkpoint.samples
        else:
            (module, schema), samples = _make_module(model, mapped), None
            _load_weights(module, path, mapped)

        def written(done: ExportProgress) -> None:
            mapped.release()
            if progress is not None:
                progress(done)

        if min_accesses is not None:
            counts = prunable_counts(module, schema, _access_counts(path))
            if not counts:
                raise ExportError(
                    f"{path}: min_accesses: expected a table whose ids are not hashed, got none"
                )
            result = prune_rows(module, schema, counts, min_accesses=min_accesses)
            module, schema = result.module, result.schema
            pruned(result.tables)
        return export_model(
            module,
            schema,
            out,
            weights=weights,
            dense_dtype=dense_dtype,
            devices=devices,
            plan=plan,
            samples=samples,
            progress=written,
        )


def _access_counts(path: Path) -> dict[str, Tensor]:
    counts = {} if path.is_file() else read_access_counts(latest_checkpoint(path) / STATE)
    if not counts:
        raise ExportError(
            f"{path}: expected access counts for min_accesses, got none; train with "
            "training.count_accesses = true"
        )
    return counts


def _make_module(model: str, mapped: MappedTables) -> tuple[nn.Module, Schema]:
    made = _call(_find_factory(model), model)
    if not (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], nn.Module)
        and isinstance(made[1], Schema)
    ):
        kinds = [type(value).__name__ for value in (made if isinstance(made, tuple) else (made,))]
        got = f"({', '.join(kinds)})" if isinstance(made, tuple) else kinds[0]
        raise ExportError(
            f"model {model!r}: expected the factory to return (torch.nn.Module, Schema), got {got}"
        )
    try:
        mapped.place(made[0])
    except InputError as error:
        raise ExportError(f"model {model!r}: {error}") from error
    return made[0], made[1]


def _find_factory(model: str) -> Callable[[], Any]:
    home, separator, name = model.partition(":")
    parts = [*home.split("."), name]
    if not separator or not all(part.isidentifier() for part in parts):
        raise ExportError(f"model: expected package.module:factory, got {model!r}")
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        raise ExportError(
            f"model {model!r}: expected a module that can be imported, got no module named "
            f"{error.name!r}"
        ) from error
    except (Exception, SystemExit) as error:  # A script may even exit.
        raise ExportError(
            f"model {model!r}: importing {home} raised {type(error).__name__}: {error}"
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise ExportError(
            f"model {model!r}: expected a function {name!r} in {module.__file__}, "
            f"got {'nothing' if factory is None else type(factory).__name__}"
        )
    return factory  # type: ignore[no-any-return]


def _call(factory: Callable[[], Any], model: str) -> Any:
    try:
        return factory()
    except (Exception, SystemExit) as error:  # The author's code may raise anything.
        raise ExportError(
            f"model {model!r}: the factory raised {type(error).__name__}: {error}"
        ) from error


def _load_weights(module: nn.Module, path: Path, mapped: MappedTables) -> None:
    if path.is_file():
        state, expected = _read_state(path), module.state_dict()
        if state.keys() != expected.keys():
            state = {uncompiled_name(name): tensor for name, tensor in state.items()}
            prefix = wrapper_prefix(state, expected)
            state = {
                name if name in expected else name.removeprefix(prefix): tensor
                for name, tensor in state.items()
            }
        check_state(module, {name: tensor.shape for name, tensor in state.items()}, where=path)
        _check_kinds(module, state, path)
        module.load_state_dict(state)
    elif (path / STATE_METADATA).is_file():
        read_state(module, path, mapped=mapped)
    else:
        load_state(module, latest_checkpoint(path), mapped=mapped)


def _check_kinds(module: nn.Module, state: Mapping[str, Tensor], where: Path) -> None:
    """`DataError`: copying a tensor into the module would fail or lose digits."""
    for name, parameter in module.state_dict().items():
        value = state[name]
        is_alike = value.is_floating_point() == parameter.is_floating_point()
        if not is_alike or value.layout is not torch.strided or value.is_meta:
            kind = "floating-point" if parameter.is_floating_point() else str(parameter.dtype)
            got = f"{value.dtype}, {value.layout} on {value.device}"
            raise DataError(f"{where}: {name}: expected a dense tensor of {kind} values, got {got}")


def _read_state(file: Path) -> Mapping[str, Tensor]:
    """Read a state dict. The file is mapped into memory if its format allows."""
    if file.suffix != ".safetensors" and file.suffix not in PICKLED:
        raise DataError(
            f"{file}: expected a checkpoint's folder, or a file with the suffix .safetensors, "
            f"{', '.join(PICKLED)}, got suffix {file.suffix!r}"
        )
    if file.stat().st_size == 0:
        raise DataError(f"{file}: expected a state dict, got an empty file")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(
            file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file)
        )
    except UnpicklingError as error:  # Its advice, weights_only=False, would run foreign code.
        if "ShardedTensor" in str(error):
            raise DataError(
                f"{file}: expected a state dict of whole tensors, got ShardedTensors, which hold "
                "the part of one rank; call torch.distributed.checkpoint.save(state_dict, "
                "checkpoint_id=folder) on every rank, and export the folder"
            ) from error
        raise DataError(
            f"{file}: expected a state dict of torch.save, got a damaged file or a pickle of "
            "other objects; save model.state_dict(), not the model"
        ) from error
    except Exception as error:  # Damaged files raise many kinds of errors.
        raise DataError(f"{file}: expected a state dict, got {error}") from error
    if isinstance(state, Mapping):  # It may also hold an epoch or an optimizer's state.
        nested = [state[name] for name in WRAPPERS if isinstance(state.get(name), Mapping)]
        state = nested[0] if nested else state
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        raise DataError(
            f"{file}: expected a dict from name to tensor, or a dict with such an entry 'model' or "
            f"'state_dict', got {_describe(state)}"
        )
    return state


def _describe(state: object) -> str:
    if not isinstance(state, Mapping):
        return type(state).__name__
    kinds = {str(name): type(value).__name__ for name, value in state.items()}
    return f"a dict of {kinds!r:.200}"
