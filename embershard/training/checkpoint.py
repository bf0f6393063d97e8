"""Checkpoints: the weights, and everything that rebuilds the model around them.

<folder>/<step>/
  checkpoint.json        model name and arguments, schema, metrics
  ids/*.safetensors      vocabularies
  samples.safetensors    requests for the package's self-check
  state/                 the weights, torch.distributed.checkpoint
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from embershard.errors import DataError, InputError
from embershard.models import build_model
from embershard.package.samples import SampleRequest, read_samples, write_samples
from embershard.package.schema import Schema
from embershard.package.schema_json import schema_from_json, schema_to_json
from embershard.training.state import read_state, write_state

__all__ = ["Checkpoint", "latest_checkpoint", "load_checkpoint", "load_state", "save_checkpoint"]

FORMAT_VERSION = 0
KEYS = frozenset({"format_version", "model", "schema", "metrics"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A trained model and what it is asked with."""

    module: nn.Module
    schema: Schema
    samples: list[SampleRequest]
    metrics: Mapping[str, float]


def save_checkpoint(
    path: Path,
    module: nn.Module,
    *,
    model: Mapping[str, Any],
    schema: Schema,
    samples: Sequence[SampleRequest],
    metrics: Mapping[str, float],
) -> None:
    """Write a checkpoint beside its place and move it there whole.

    Args:
        path: its folder; replaced if there is one.
        module: what is saved: its state dict.
        model: ``name`` and ``arguments`` for ``build_model``.
        schema: inputs and id maps.
        samples: requests without outputs, at least one.
        metrics: figures to keep with it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    try:
        document = {
            "format_version": FORMAT_VERSION,
            "model": dict(model),
            "schema": schema_to_json(schema, partial / "ids"),
            "metrics": dict(metrics),
        }
        (partial / "checkpoint.json").write_text(json.dumps(document, indent=1) + "\n")
        write_samples(partial / "samples.safetensors", samples)
        write_state(module, partial / "state")
        _move(partial, path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def load_checkpoint(path: Path) -> Checkpoint:
    """Rebuild a model from its checkpoint.

    Args:
        path: the checkpoint's folder, or the folder of several: the highest step is taken.

    Raises:
        DataError: no checkpoint there, or a damaged one.
    """
    path = latest_checkpoint(path)
    document = _read_document(path / "checkpoint.json")
    schema = schema_from_json(document["schema"], path / "ids", file=str(path / "checkpoint.json"))
    module = build_model(document["model"]["name"], document["model"]["arguments"])
    load_state(module, path)
    return Checkpoint(
        module=module,
        schema=schema,
        samples=read_samples(path / "samples.safetensors"),
        metrics=document["metrics"],
    )


def load_state(module: nn.Module, path: Path) -> None:
    """Read a checkpoint's weights into a module of the same shape.

    Raises:
        DataError: weights of other names or shapes, or a damaged folder.
    """
    read_state(module, path / "state")


def latest_checkpoint(path: Path) -> Path:
    """``path`` if it is a checkpoint, else the one of the highest step in it.

    Raises:
        DataError: neither.
    """
    if (path / "checkpoint.json").is_file():
        return path
    steps = [child for child in path.glob("*/checkpoint.json") if child.parent.name.isdigit()]
    if not steps:
        raise DataError(f"{path}: expected a checkpoint (checkpoint.json), found none")
    return max((child.parent for child in steps), key=lambda child: int(child.name))


def _move(partial: Path, path: Path) -> None:
    """Into place; what was there leaves whole, before and after which a reader finds all or
    nothing."""
    if path.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".old", dir=path.parent))
        os.rename(path, old)  # Onto an empty folder, which rename(2) replaces.
        os.rename(partial, path)
        shutil.rmtree(old)
    else:
        os.rename(partial, path)


def _read_document(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: expected JSON, got {error}") from error
    if not isinstance(document, dict) or document.keys() != KEYS:
        got = sorted(document) if isinstance(document, dict) else document
        raise DataError(f"{file}: expected the keys {sorted(KEYS)}, got {got!r:.200}")
    if document["format_version"] != FORMAT_VERSION:
        raise DataError(
            f"{file}: format_version: expected {FORMAT_VERSION}, got {document['format_version']!r}"
        )
    model = document["model"]
    if not isinstance(model, dict) or model.keys() != {"name", "arguments"}:
        raise InputError(f"{file}: model: expected name and arguments, got {model!r:.200}")
    return document
