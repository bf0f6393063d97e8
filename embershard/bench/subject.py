"""The model under load, as its server or, for a server of another make, a package describes it."""

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
"""gRPC's own limit. A server of another make does not say what it takes."""


def find_subject(
    ask: Callable[[str], ServedModel],
    *,
    model: str,
    label: str = "",
    replay: Replay | None,
    package: Path | None,
) -> tuple[ServedModel, bool]:
    """Ask the server for a model. Returns what is served, and True if the server described it.
    Servers of another make do not: they take tensors as Triton does, and serve ``package``.

    Args:
        ask: GetModel of a name, as `ask_model`.
        model: the name. Empty: that of the recording, or the only one served.
        label: of the version that ``ask`` asks for.
        replay: a recording that is sent.
        package: what a server of another make serves. None: such a server is an error.

    Raises:
        NotFoundError: the model is not served, or several are served and none is named.
        InputError: a server of another make, and no package or a label.
        PackageError: the folder holds no package.
        EmbershardError: any other failure of the server.
    """
    name = model or (replay.recording.model if replay is not None else "")
    try:
        return ask(name), True
    except OtherServerError as error:
        if package is None:
            words = "by --protocol oip or torchrec, and --package PATH of what it serves"
            raise InputError(f"{error}; another is measured {words}") from error
        if label:
            raise InputError(
                f"{error}; expected a version (--version), got label {label!r}"
            ) from error
        return packaged_model(package, name), False


def packaged_model(package: Path, name: str) -> ServedModel:
    """The description that our own server would give of a package. ``name``: the model's name at
    the server. Empty: the package's."""
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
    known = 0  # A vocabulary has no range.
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
