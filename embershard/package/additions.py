"""Adds a plan to a published package, whole or not at all; and a program to its next version.

    <repository>/<model>/.<version>.<random>.partial/    every file of the package by a hard link,
                                                         what is added, a manifest that lists it
    <repository>/<model>/<version>/                      a plan: the two folders change places at
                                                         once; a program: it is moved to another

A reader finds the package with the plan or without it.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from embershard.errors import InputError
from embershard.package.manifest import CompiledProgramSpec
from embershard.package.names import identity_of
from embershard.package.plan import Plan, unserved_devices
from embershard.package.reader import Package
from embershard.package.sealing import file_spec, link_or_copy, locked_folder
from embershard.package.validation import MANIFEST
from embershard.package.writer import PackageWriter


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
    with locked_folder(folder):
        if plan.name in Package.open(folder).manifest.plans:
            raise InputError(
                f"plan {plan.name!r} is there already, and plans are never replaced: "
                "choose another name"
            )
        document = json.loads((folder / MANIFEST).read_bytes())
        with PackageWriter(folder, replace=True) as writer:
            _link(writer, folder, document["files"])
            file = writer.add_plan(plan)
            document["plans"].append(plan.name)
            if default:
                document["default_plan"] = plan.name
            _list(writer, document, document["files"], file)
            writer.publish_document(document)
    return Package.open(folder)


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
        copied = _link(writer, package.path, kept)
        shutil.copyfile(data, writer.new_file(program.file))
        document["model"], document["version"] = model, version
        document["programs"] = [
            *(each for each in document["programs"] if each["target"] != program.target),
            program.model_dump(mode="json"),
        ]
        _list(writer, document, kept, program.file)
        writer.publish_document(document, check)
    return copied


def _link(writer: PackageWriter, folder: Path, files: Iterable[str]) -> int:
    """Gives files of a package a second name; how many were copied instead."""
    linked = [link_or_copy(folder / file, writer.new_file(file)) for file in files]
    return linked.count(False)


def _list(writer: PackageWriter, document: dict[str, Any], kept: Iterable[str], new: str) -> None:
    """Has the manifest list the files that are kept, and a new one."""
    files = {file: document["files"][file] for file in kept}
    files[new] = file_spec(writer.path(new)).model_dump()
    document["files"] = dict(sorted(files.items()))
