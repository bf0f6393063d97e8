"""What is under load: as its server says, or a package where the server is of another make."""

from pathlib import Path
from typing import Final

from embershard.bench.replay import Replay
from embershard.bench.target import OtherServerError, Target, ask_model
from embershard.client import ServedInput, ServedModel, ServedOutput
from embershard.errors import InputError, NotFoundError
from embershard.package import Package
from embershard.package.input_specs import known_ids
from embershard.package.manifest_inputs import DenseInputSpec, HashIds, IdentityIds, InputSpec

MAX_MESSAGE_BYTES: Final = 1 << 31
"""Of gRPC's largest. Such a server does not say what it takes."""


def find_subject(
    target: Target,
    *,
    model: str,
    version: int = 0,
    label: str = "",
    replay: Replay | None,
    package: Path | None,
    patience_seconds: float,
) -> tuple[ServedModel, bool]:
    """Ask the server for a model. Empty: that of the recording, ``replay``, or the only one served.
    Returns what is served, and whether the server described it: other servers take tensors as
    Triton does, and serve ``package``. None: such a server is an error.

    Raises:
        NotFoundError: none is named, and several are served; or the one that is named is not.
        InputError: a recording's requests name none, and several are served; a server of another
            make, and no package or a label.
        PackageError: the package is none.
        EmbershardError: what else the server answers.
    """
    name = model or (replay.recording.model if replay is not None else "")
    try:
        found = ask_model(
            target, name, version=version, label=label, timeout_seconds=patience_seconds
        )
    except OtherServerError as error:
        if package is None:
            words = "by --protocol oip or torchrec, and --package PATH of what it serves"
            raise InputError(f"{error}; another is measured {words}") from error
        if label:
            raise InputError(
                f"{error}; expected a version (--version), got label {label!r}"
            ) from error
        return packaged_model(package, name), False
    if replay is not None and not replay.name_model:
        try:
            ask_model(target, "", timeout_seconds=patience_seconds)
        except NotFoundError as error:
            raise InputError(
                f"{replay.path}: its requests name no model, and are sent as they are: expected a "
                f"target that serves {found.name} alone, got: {error}"
            ) from error
    return found, True


def packaged_model(package: Path, name: str) -> ServedModel:
    """What our own server would say of a package. ``name``: of the model at the server. Empty: the
    package's."""
    manifest = Package.open(package).manifest
    return ServedModel(
        name=name or manifest.model,
        version=manifest.version,
        fingerprint=int(manifest.fingerprint, 16),
        inputs=(*map(_input, manifest.dense), *map(_input, manifest.sparse)),
        outputs=tuple(
            ServedOutput(name=each.name, scope=each.scope, shape=each.shape)
            for each in manifest.outputs
        ),
        max_examples=manifest.limits.max_examples,
        max_ids=manifest.limits.max_ids,
        max_message_bytes=MAX_MESSAGE_BYTES,
    )


def _input(spec: InputSpec) -> ServedInput:
    if isinstance(spec, DenseInputSpec):
        return ServedInput(name=spec.name, kind="dense", scope=spec.scope, default=spec.default)
    known = 0  # Of a vocabulary.
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
