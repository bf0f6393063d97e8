"""What is under load: as its server says, or a package where the server is of another make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from embershard.bench.packaged import packaged_model
from embershard.bench.replay import Replay
from embershard.bench.target import OtherServerError, Target, ask_model
from embershard.client import ServedModel
from embershard.errors import InputError, NotFoundError

__all__ = ["Subject", "find_subject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model at a server."""

    model: ServedModel

    is_ours: bool
    """Whether the server said so itself. Others are asked as Triton is."""


def find_subject(
    target: Target,
    *,
    model: str,
    version: int = 0,
    label: str = "",
    replay: Replay | None,
    package: Path | None,
    patience_seconds: float,
) -> Subject:
    """Ask the server.

    Args:
        model: its name. Empty: that of the recording, or the only one served.
        version, label: of the model. None: its default version.
        replay: whose requests will be sent.
        package: what a server of another make is taken to serve. None: such a server is an error.

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
        return Subject(model=packaged_model(package, name), is_ours=False)
    if replay is not None and not replay.name_model:
        try:
            ask_model(target, "", timeout_seconds=patience_seconds)
        except NotFoundError as error:
            raise InputError(
                f"{replay.path}: its requests name no model, and are sent as they are: expected a "
                f"target that serves {found.name} alone, got: {error}"
            ) from error
    return Subject(model=found, is_ours=True)
