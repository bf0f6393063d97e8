"""Labels of a model's versions, in ``<repository>/<model>/labels.json``."""

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from embershard.errors import NotFoundError, PackageError, RequestError, UnavailableError
from embershard.package.files import file_kind, locked_folder, replace_file
from embershard.package.names import NAME_PATTERN, PATTERN_WORDS, VERSION_MAX, version_of
from embershard.package.validation import MANIFEST, parse_json, refusal

LABELS: Final = ("canary", "shadow", "stable")
LABELS_FILE: Final = "labels.json"
BYTES_MAX: Final = 4096


class WrittenLabels(NamedTuple):
    labels: dict[str, int]

    made_stable: int = 0
    """The version that `write_label` labelled ``stable`` in addition. 0: none."""


def parse_labels(data: bytes) -> dict[str, int]:
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
    """Versions of a model by label. Empty if labels.json does not exist."""
    # O_NONBLOCK: opening a FIFO would wait for a writer otherwise.
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
    """Move a label to a version, or remove it for version 0, atomically. Labelling a version
    ``canary`` or ``shadow`` also labels the default version ``stable`` if no version is ``stable``.
    From then on a version becomes the default only by that label. Servers notice when they next
    look at the repository. Concurrent calls wait for each other.

    ``served`` is the default version that a server reports. 0 stands for the highest version other
    than ``version`` without a label.

    Raises RequestError for an unknown label, or a canary or shadow without another version as
    default; NotFoundError if the repository has no such model or version; PackageError if the
    existing labels cannot be read; UnavailableError if the file cannot be written.
    """
    made = dict[str, int]()

    def moved(folder: Path, before: dict[str, int]) -> dict[str, int]:
        if version and "stable" not in {**before, label: version}:
            made["stable"] = (
                _check_served(folder, label, version, served)
                if served
                else _other_default(folder, label, version, before)
            )
        return {**before, label: version, **made}

    labels = _change_labels(repository, model, {label: version}, moved)
    return WrittenLabels(labels, made.get("stable", 0))


def write_labels(repository: Path, model: str, versions: Mapping[str, int]) -> dict[str, int]:
    """Move several labels of a model in one atomic change, and return all of its labels. Version 0
    removes a label. Unlike `write_label`, this labels no other version ``stable``, and a canary or
    shadow needs no default version. The other errors are the same."""
    return _change_labels(repository, model, versions, lambda _, before: {**before, **versions})


def _change_labels(
    repository: Path,
    model: str,
    versions: Mapping[str, int],
    moved: Callable[[Path, dict[str, int]], dict[str, int]],
) -> dict[str, int]:
    """Check ``versions``, then write the labels that ``moved`` makes of the folder and its
    labels."""
    for label in versions:
        if label not in LABELS:
            raise RequestError(f"label: expected {', '.join(LABELS)}, got {label!r}")
    if not re.fullmatch(NAME_PATTERN, model):
        raise RequestError(f"model: expected {PATTERN_WORDS[NAME_PATTERN]}, got {model!r}")
    folder = repository / model
    if not folder.is_dir():
        raise NotFoundError(f"{repository}: expected the folder of a model {model!r}, got none")
    try:
        with locked_folder(folder):
            for version in filter(None, versions.values()):
                if not (folder / str(version) / MANIFEST).is_file():
                    raise NotFoundError(f"{folder}: expected a version {version}, got none")
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


def _check_served(folder: Path, label: str, version: int, served: int) -> int:
    """Check that a server's default version exists and is not ``version``, and return it."""
    if served == version:
        raise RequestError(
            f"{label}: expected a version other than the server's default version, got {version}; "
            "publish another version, or label one stable first"
        )
    if not (folder / str(served) / MANIFEST).is_file():
        raise NotFoundError(
            f"{folder}: expected the server's default version {served}, got no such version; pass "
            "the repository that the server serves"
        )
    return served


def _other_default(folder: Path, label: str, version: int, labels: dict[str, int]) -> int:
    """The highest version other than ``version`` without a label."""
    versions = {version_of(manifest.parent.name) for manifest in folder.glob(f"*/{MANIFEST}")}
    others = versions - {0, version, *labels.values()}
    if not others:
        raise RequestError(
            f"{label}: expected another version for the other requests, got only {version}; "
            "publish another version, or label one stable"
        )
    return max(others)
