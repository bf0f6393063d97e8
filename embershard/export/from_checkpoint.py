"""From weights on disk to a package: a checkpoint of ours, or any state dict and its factory."""

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
from embershard.export.pruning import PrunedTable, prunable_counts, prune_rows
from embershard.export.tables import Weights
from embershard.export.tracing import uncompiled_name
from embershard.package.schema import Schema
from embershard.package.files import room_needed
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
    """Export what a checkpoint holds; see `export_model`.

    Args:
        path: a checkpoint's folder, or the folder of several: the highest step is taken. With
            ``model`` also a folder of ``save_state``, or a state dict in a file: ``.safetensors``,
            or ``.pt`` as torch.save wrote it, which is read with weights_only=True; the state dict
            may be an entry ``model`` or ``state_dict`` beside others.
        out: ``<repository>/<model>/<version>``.
        weights: how tables are stored.
        dense_dtype: what linear layers of the dense program take, fp32 or bf16.
        devices: what the default plan places the tables on.
        plan: how, as in ``export_model``.
        model: ``package.module:factory``; ``factory()`` gives the module, whose weights are then
            replaced by those at ``path``, and its schema. Tables that it builds on device meta
            are read chunk by chunk, those of a checkpoint of ours too: they need to fit on the
            disk of ``out`` only. None: the checkpoint tells.
        min_accesses: rows that training looked up less often are left out; see ``prune_rows``.
            The checkpoint has counts then (``training.count_accesses``). Tables of hashed ids stay
            whole. None: all rows stay.
        pruned: called with what was left out, by table.
        progress: called as rows are written.

    Returns:
        ``out``.

    Raises:
        DataError: no checkpoint or state dict there, a damaged one, or one of another module.
        ExportError: a factory that cannot be used; besides, what `export_model` raises.
    """
    path = Path(path)
    near = next(each for each in Path(out).absolute().parents if each.is_dir())
    with room_needed(Path(out)), TemporaryDirectory(prefix=".export.", dir=near) as folder:
        # Read chunk by chunk into files: no table needs to fit in memory.
        mapped = MappedTables(folder)
        if model is None:
            checkpoint = load_checkpoint(path, mapped=mapped)
            module, schema, samples = checkpoint.module, checkpoint.schema, checkpoint.samples
        else:
            (module, schema), samples = _made_by(model, mapped), None
            _load_weights(module, path, mapped)

        def written(done: ExportProgress) -> None:
            mapped.release()
            if progress is not None:
                progress(done)

        if min_accesses is not None:
            counts = prunable_counts(module, schema, _access_counts(path))
            if not counts:
                raise ExportError(
                    f"{path}: min_accesses: expected a table without hashed ids to prune, got none"
                )
            kept = prune_rows(module, schema, counts, min_accesses=min_accesses)
            module, schema = kept.module, kept.schema
            pruned(kept.tables)
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
            f"{path}: expected access counts with min_accesses (training.count_accesses = true), "
            "got none"
        )
    return counts


def _made_by(model: str, mapped: MappedTables) -> tuple[nn.Module, Schema]:
    made = _call(_factory(model), model)
    if not (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], nn.Module)
        and isinstance(made[1], Schema)
    ):
        kinds = [type(each).__name__ for each in (made if isinstance(made, tuple) else (made,))]
        got = f"({', '.join(kinds)})" if isinstance(made, tuple) else kinds[0]
        raise ExportError(
            f"model {model!r}: expected the factory to return (torch.nn.Module, Schema), got {got}"
        )
    try:
        mapped.place(made[0])
    except InputError as error:
        raise ExportError(f"model {model!r}: {error}") from error
    return made[0], made[1]


def _factory(model: str) -> Callable[[], Any]:
    home, separator, name = model.partition(":")
    parts = [*home.split("."), name]
    if not separator or not all(part.isidentifier() for part in parts):
        raise ExportError(f"model: expected package.module:factory, got {model!r}")
    try:
        module = importlib.import_module(home)
    except ModuleNotFoundError as error:
        raise ExportError(f"model {model!r}: no module named {error.name!r}") from error
    except (Exception, SystemExit) as error:  # As a script that is no module of functions.
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
    """`DataError`: a tensor that can be copied only with a loss, or not at all."""
    for name, own in module.state_dict().items():
        given = state[name]
        is_alike = given.is_floating_point() == own.is_floating_point()
        if not is_alike or given.layout is not torch.strided or given.is_meta:
            kind = "floating-point" if own.is_floating_point() else str(own.dtype)
            got = f"{given.dtype}, {given.layout} on {given.device}"
            raise DataError(f"{where}: {name}: expected {kind} values, torch.strided, got {got}")


def _read_state(file: Path) -> Mapping[str, Tensor]:
    """A state dict, mapped from the file where its format allows: never a second copy."""
    if file.suffix != ".safetensors" and file.suffix not in PICKLED:
        raise DataError(
            f"{file}: expected a checkpoint's folder, or a file that ends in .safetensors or one "
            f"of {', '.join(PICKLED)}"
        )
    if file.stat().st_size == 0:
        raise DataError(f"{file}: expected a state dict, got an empty file")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(
            file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file)
        )
    except UnpicklingError as error:  # Its text wants an argument that would run the pickle.
        if "ShardedTensor" in str(error):
            raise DataError(
                f"{file}: expected a state dict of whole tensors, got ShardedTensors, of which a "
                "file holds one rank's part; call torch.distributed.checkpoint.save(state_dict, "
                "checkpoint_id=folder) on every rank, and export the folder"
            ) from error
        raise DataError(
            f"{file}: expected a state dict as torch.save writes it, got a damaged file or a "
            "pickle of other objects; save model.state_dict(), not the model"
        ) from error
    except Exception as error:  # Damaged files fail in many ways.
        raise DataError(f"{file}: expected a state dict, got {error}") from error
    if isinstance(state, Mapping):  # Beside the epoch, an optimizer's state and others.
        nested = [state[name] for name in WRAPPERS if isinstance(state.get(name), Mapping)]
        state = nested[0] if nested else state
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        raise DataError(
            f"{file}: expected a dict from name to tensor, by itself or as 'model' or "
            f"'state_dict' of a dict, got {_described(state)}"
        )
    return state


def _described(state: object) -> str:
    if not isinstance(state, Mapping):
        return type(state).__name__
    kinds = {str(name): type(value).__name__ for name, value in state.items()}
    return f"a dict of {kinds!r:.200}"
