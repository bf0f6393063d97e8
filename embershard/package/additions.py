"""Adds a plan to a published package, whole or not at all; and a program to its next version.

    <repository>/<model>/.<version>.<random>.partial/    every file of the package by a hard link,
                                                         the plan, a manifest that lists it
    <repository>/<model>/<version>/                      the two folders change places at once

A reader finds the package with the plan or without it. A process that dies leaves at most
the hidden folder, which nothing reads and which may be deleted.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from embershard.errors import InputError
from embershard.package.manifest import CompiledProgramSpec, Manifest
from embershard.package.names import identity_of
from embershard.package.plan import Plan, plan_json, unserved_devices
from embershard.package.reader import Package, verify_package
from embershard.package.refusal import MANIFEST
from embershard.package.sealing import file_spec, link_or_copy, seal, sync, sync_tree
from embershard.package.writer import PackageWriter

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def add_plan(package: str | Path, plan: Plan, *, default: bool = False) -> Package:
    """Adds ``plan`` to the package in the folder ``package``.

    Servers that have the package open keep what they opened. Where several add at once, each
    waits for the one before.

    Args:
        package: the folder, or a symbolic link to it.
        plan: for the package's tables.
        default: whether it becomes the package's default.

    Returns:
        The package with the plan, opened.

    Raises:
        PackageError: the package is damaged, or the plan does not fit its tables.
        InputError: it has a plan of that name: plans are never replaced; a default that is for
            other devices than processors, which no server has; or its file system cannot exchange
            two folders.
    """
    if default and (other := unserved_devices(plan)):
        raise InputError(
            "plan: expected devices that servers have (cpu) of a plan that is the default, "
            f"got {other[0]}; without --default it is added beside"
        )
    folder = Path(package).resolve()
    with _alone(folder):
        manifest = Package.open(folder).manifest
        if plan.name in manifest.plans:
            raise InputError(
                f"plan {plan.name!r} is there already, and plans are never replaced: "
                "choose another name"
            )
        partial = Path(
            tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent)
        )
        try:
            _fill(partial, folder, manifest, plan, default)
            verify_package(partial, hashes=False)  # Its large files are those of the old one.
            partial.chmod(folder.stat().st_mode & 0o7777)
            sync_tree(partial)
            _exchange(partial, folder)
            sync(folder.parent)
        finally:
            shutil.rmtree(partial)  # The old folder, or what was not finished.
    return Package.open(folder)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds a lock on the folder that has that name now, as the only one."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                yield
                return
        finally:
            os.close(descriptor)


def _fill(partial: Path, folder: Path, manifest: Manifest, plan: Plan, default: bool) -> None:
    for file in manifest.files:
        (partial / file).parent.mkdir(parents=True, exist_ok=True)
        os.link(folder / file, partial / file, follow_symlinks=False)
    data = plan_json(plan)
    file = f"plans/{plan.name}.json"
    (partial / file).write_bytes(data)
    document = json.loads((folder / MANIFEST).read_bytes())
    document["plans"].append(plan.name)
    if default:
        document["default_plan"] = plan.name
    document["files"][file] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    document["files"] = dict(sorted(document["files"].items()))
    seal(partial, document)


def _exchange(one: Path, other: Path) -> None:
    """Two folders change places, in one step that no one sees half done."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = (_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other))
    if libc.renameat2(*names, ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        raise InputError(
            f"{other}: expected a file system that exchanges two folders in one step, "
            "got one that does not; copy the package to another, add the plan, and copy it back "
            "as the next version"
        )
    raise OSError(number, os.strerror(number), str(other))


def add_program(
    package: Package,
    out: Path,
    program: CompiledProgramSpec,
    data: Path,
    *,
    check: Callable[[Path], None],
) -> int:
    """Publishes ``package`` at ``out`` with a further program.

    Args:
        package: left as it is. What counts is what it is now: a plan may have been added since it
            was opened.
        out: ``<repository>/<model>/<version>``; must not be there yet.
        program: what the manifest says of it. One of the same target is left out.
        data: the file that becomes ``program.file``.
        check: called with the finished folder before it is moved to ``out``; raises where it is
            not good.

    Returns:
        How many files were copied, as their file system could not give them a second name.

    Raises:
        InputError: something is at ``out``, or that is no place for a package; or ``program``
            would take the place of a file that is something else.
        PackageError: the manifest would contradict itself.
    """
    model, version = identity_of(out)
    package = Package.open(package.path)
    document = json.loads((package.path / MANIFEST).read_bytes())
    replaced = {each.file for each in package.manifest.compiled if each.target == program.target}
    kept = [file for file in document["files"] if file not in replaced]
    if program.file in kept:
        raise InputError(f"{program.file}: expected a path that is free, got one of the package's")
    with PackageWriter(out) as writer:
        linked = [link_or_copy(package.path / file, writer.new_file(file)) for file in kept]
        shutil.copyfile(data, writer.new_file(program.file))
        document["model"], document["version"] = model, version
        document["programs"] = [
            *(each for each in document["programs"] if each["target"] != program.target),
            program.model_dump(mode="json"),
        ]
        files = {file: document["files"][file] for file in kept}
        files[program.file] = file_spec(writer.path(program.file)).model_dump()
        document["files"] = dict(sorted(files.items()))
        writer.publish_document(document, check)
    return linked.count(False)
