"""What a server of another make serves, by the package: it cannot be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from embershard.client import ServedInput, ServedModel, ServedOutput
from embershard.package import Package
from embershard.package.input_specs import known_ids
from embershard.package.manifest import Manifest
from embershard.package.manifest_inputs import (
    DenseInputSpec,
    HashIds,
    IdentityIds,
    Ids,
    InputSpec,
    VocabIds,
)

__all__ = ["packaged_model"]

MAX_MESSAGE_BYTES: Final = 1 << 31
"""Of gRPC's largest. Such a server does not say what it takes."""


def packaged_model(package: Path, name: str) -> ServedModel:
    """What our own server would say of the package.

    Args:
        package: folder of the package.
        name: of the model at the server. Empty: the package's.

    Raises:
        PackageError: it is none.
    """
    manifest = Package.open(package).manifest
    return ServedModel(
        name=name or manifest.model,
        version=manifest.version,
        fingerprint=int(manifest.fingerprint, 16),
        inputs=tuple(_input(each) for each in _in_order(manifest)),
        outputs=tuple(
            ServedOutput(name=each.name, scope=each.scope, shape=each.shape)
            for each in manifest.outputs
        ),
        max_examples=manifest.limits.max_examples,
        max_ids=manifest.limits.max_ids,
        max_message_bytes=MAX_MESSAGE_BYTES,
    )


def _in_order(manifest: Manifest) -> list[InputSpec]:
    """As in the packed form."""
    return [*manifest.dense, *manifest.sparse]


def _input(spec: InputSpec) -> ServedInput:
    if isinstance(spec, DenseInputSpec):
        return ServedInput(name=spec.name, kind="dense", scope=spec.scope, default=spec.default)
    return ServedInput(
        name=spec.name,
        kind="sparse",
        scope=spec.scope,
        weighted=spec.weighted,
        max_ids=spec.max_ids,
        known_ids=_known_ids(spec.ids),
    )


def _known_ids(ids: Ids) -> int:
    match ids:
        case VocabIds():
            return 0
        case HashIds():
            return ids.rows
        case IdentityIds():
            return known_ids(ids)
