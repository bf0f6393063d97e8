"""Describes the model under load. An embershard server describes it; for others a package does."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from embershard.bench.replay import Replay
from embershard.bench.target import OtherServerError
from embershard.client import ServedInput, ServedModel, ServedOutput
from embershard.errors import InputError
from embershard.package import Package
from embershard.package.input_specs import known_ids
from embershard.package.manifest_inputs import DenseInputSpec, HashIds, IdentityIds, InputSpec

MAX_MESSAGE_BYTES: Final = 1 << 31
"""gRPC's own limit, for servers that do not report theirs."""


def find_subject(
    ask: Callable[[str], ServedModel],
    *,
    model: str,
    label: str = "",
    replay: Replay | None,
    package: Path | None,
) -> tuple[ServedModel, bool]:
    """The served model, and True if an embershard server described it, else ``package`` does.

    ``ask`` calls GetModel with a name. An empty ``model`` is the recorded one, or the only one.

    Raises:
        NotFoundError: the model is not served, or none is named and the server has several.
        InputError: a server that is not ours, with a label or without a package.
        PackageError: the folder holds no package.
        EmbershardError: any other failure of the server.
    """
    name = model or (replay.recording.model if replay is not None else "")
    try:
        return ask(name), True
    except OtherServerError as error:
        if package is None:
            raise InputError(
                f"{error}; expected an embershard server, or --protocol oip or torchrec with "
                "--package PATH of the served package"
            ) from error
        if label:
            raise InputError(
                f"{error}; expected a version (--version), got label {label!r}"
            ) from error
        return packaged_model(package, name), False


def packaged_model(package: Path, name: str) -> ServedModel:
    """The package as an embershard server describes it. ``name``: at the server; empty: its own."""
    manifest = Package.open(package).manifest
    return ServedModel(
        name=name or manifest.model,
        version=manifest.version,
        fingerprint=int(manifest.fingerprint, 16),
        inputs=(*map(_input, manifest.dense), *map(_input, manifest.sparse)),
        outputs=tuple(
            ServedOutput(name=output.name, scope=output.scope, shape=output.shape)
            for output in manifest.outputs
        ),
        max_examples=manifest.limits.max_examples,
        max_ids=manifest.limits.max_ids,
        max_message_bytes=MAX_MESSAGE_BYTES,
    )


def _input(spec: InputSpec) -> ServedInput:
    if isinstance(spec, DenseInputSpec):
        return ServedInput(name=spec.name, kind="dense", scope=spec.scope, default=spec.default)
    known = 0  # The ids of a vocabulary are no range.
    if isinstance(spec.ids, HashIds):
        known = spec.ids.rows
    elif isinstance(spec.ids, IdentityIds):
        known = known_ids(spec.ids)
    return ServedInput(
        name=spec.name,
        kind="sparse",
        scope=spec.scope,
        weighted=spec.weighted,
        max_ids=spec.max_ids,
        known_ids=known,
        hashed=isinstance(spec.ids, HashIds),
    )
