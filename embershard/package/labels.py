"""Labels of a model's versions: ``<repository>/<model>/labels.json``."""

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from embershard.errors import NotFoundError, PackageError, RequestError, UnavailableError
from embershard.package.names import NAME_PATTERN, PATTERN_WORDS, VERSION_MAX, version_of
from embershard.package.sealing import file_kind, locked_folder, replace_file
from embershard.package.validation import MANIFEST, parse_json, refusal

LABELS: Final = ("canary", "shadow", "stable")
LABELS_FILE: Final = "labels.json"
BYTES_MAX: Final = 4096


class WrittenLabels(NamedTuple):
    """What `write_label` left on disk."""

    labels: dict[str, int]
    made_stable: int = 0
    """The default version, if it was labelled ``stable`` as well. 0: none was."""


def parse_labels(data: bytes) -> dict[str, int]:
    """Versions by label."""
    document = parse_json(data, LABELS_FILE)
    if not isinstance(document, dict):
        raise refusal(LABELS_FILE, "", expected="an object", got=json.dumps(document))
    for label, version in document.items():
        if label not in LABELS:
            raise refusal(LABELS_FILE, label, expected="canary, shadow or stable", got=label)
        whole = isinstance(version, int) and not isinstance(version, bool)
        if not whole or not 1 <= version <= VERSION_MAX:
            expected = f"an integer from 1 to {VERSION_MAX}"
            raise refusal(LABELS_FILE, label, expected=expected, got=json.dumps(version))
    return document


def read_labels(model_folder: Path) -> dict[str, int]:
    """The labels of a model; none without the file."""
    # Not to wait for who writes, where it is a FIFO.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(model_folder / LABELS_FILE, flags)
    except FileNotFoundError:
        return {}
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise PackageError(f"{LABELS_FILE}: cannot be read: {error.strerror}") from error
        got = "a symbolic link"
        raise refusal(LABELS_FILE, "file", expected="a regular file", got=got) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise refusal(LABELS_FILE, "file", expected="a regular file", got=file_kind(mode))
        data = os.read(descriptor, BYTES_MAX + 1)
    finally:
        os.close(descriptor)
    if len(data) > BYTES_MAX:
        raise refusal(LABELS_FILE, "bytes", expected=f"at most {BYTES_MAX}", got="more")
    return parse_labels(data)


def write_label(
    repository: Path, model: str, label: str, version: int, *, served: int = 0
) -> WrittenLabels:
    """Gives a version a label, or takes the label away, whole or not at all.

    If no version is ``stable``, a ``canary`` or ``shadow`` also labels the default version
    ``stable``. Later versions then become the default by that label alone.

    Servers see it when they look at the repository again. Where several write at once, each waits
    for the one before.

    Args:
        label: ``canary``, ``shadow`` or ``stable``.
        version: 0: no version has it.
        served: the default version, as a server reports it. 0: the highest other version that is
            neither canary nor shadow.

    Returns:
        All labels of the model, as they are now on disk.

    Raises:
        RequestError: another label; a canary or shadow beside which no version would be stable.
        NotFoundError: no such version in the repository.
        PackageError: the labels that are there cannot be read.
        UnavailableError: the file cannot be written: a full or read-only disk, say.
    """
    made = dict[str, int]()

    def moved(folder: Path, before: dict[str, int]) -> dict[str, int]:
        if version and "stable" not in {**before, label: version}:
            made["stable"] = (
                _served_beside(folder, label, version, served)
                if served
                else _default_beside(folder, label, version, before)
            )
        return {**before, label: version, **made}

    labels = _change_labels(repository, model, {label: version}, moved)
    return WrittenLabels(labels, made.get("stable", 0))


def write_labels(repository: Path, model: str, versions: Mapping[str, int]) -> dict[str, int]:
    """Moves several labels of a model at once, whole or not at all; raises as `write_label`.
    ``versions``: by label; 0: no version has it. Labels that are not named stay where they are.
    Returns all labels of the model, as they are now on disk."""
    return _change_labels(repository, model, versions, lambda _, before: {**before, **versions})


def _change_labels(
    repository: Path,
    model: str,
    versions: Mapping[str, int],
    moved: Callable[[Path, dict[str, int]], dict[str, int]],
) -> dict[str, int]:
    """Writes what ``moved`` makes of a model's folder and labels, once ``versions`` are checked."""
    for label in versions:
        if label not in LABELS:
            raise RequestError(f"label: expected {', '.join(LABELS)}, got {label!r}")
    if not re.fullmatch(NAME_PATTERN, model):
        raise RequestError(f"model: expected {PATTERN_WORDS[NAME_PATTERN]}, got {model!r}")
    folder = repository / model
    if not folder.is_dir():
        raise NotFoundError(f"{repository}: no model {model!r}")
    try:
        with locked_folder(folder):
            for version in filter(None, versions.values()):
                if not (folder / str(version) / MANIFEST).is_file():
                    raise NotFoundError(f"{folder}: no version {version}")
            before = read_labels(folder)
            after = moved(folder, before)
            labels = {label: version for label, version in after.items() if version}
            if labels != before:
                text = json.dumps(labels, indent=1, sort_keys=True) + "\n"
                replace_file(folder / LABELS_FILE, text.encode())
    except PackageError as error:
        raise PackageError(f"model {model!r}: {error}") from error
    except OSError as error:
        why = error.strerror or error
        raise UnavailableError(f"{folder / LABELS_FILE}: cannot be written: {why}") from error
    return labels


def _served_beside(folder: Path, label: str, version: int, served: int) -> int:
    """The default version of a server, once ``version`` has the label."""
    if served == version:
        raise RequestError(
            f"{label}: expected a version other than the default version of the server, got "
            f"{version}: publish another one, or label one stable first"
        )
    if not (folder / str(served) / MANIFEST).is_file():
        raise NotFoundError(
            f"{folder}: expected the default version of the server, {served}, found no such "
            "version: name the repository that the server has"
        )
    return served


def _default_beside(folder: Path, label: str, version: int, labels: dict[str, int]) -> int:
    """The default version, without a ``stable`` one, once ``version`` has the label."""
    versions = {version_of(each.parent.name) for each in folder.glob(f"*/{MANIFEST}")}
    others = versions - {0, version, *labels.values()}
    if not others:
        raise RequestError(
            f"{label}: expected another version to answer the other requests, found none beside "
            f"{version}: publish one, or label one stable"
        )
    return max(others)
