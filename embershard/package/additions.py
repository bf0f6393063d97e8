"""Adds a plan to a published package, whole or not at all.

    <repository>/<model>/.<version>.<random>.partial/    every file of the package by a hard link,
                                                         the plan, a manifest that lists it
    <repository>/<model>/<version>/                      the two folders change places at once

A reader finds the package with the plan or without it.
"""

import json
from pathlib import Path

from embershard.errors import InputError
from embershard.package.plan import Plan
from embershard.package.reader import Package
from embershard.package.sealing import locked_folder
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
        InputError: it has a plan of that name, and plans are never replaced; or its file system
            cannot exchange two folders.
    """
    folder = Path(package).resolve()
    with locked_folder(folder):
        before = Package.open(folder).manifest
        if plan.name in before.plans:
            raise InputError(
                f"plan {plan.name!r} is there already, and plans are never replaced: "
                "choose another name"
            )
        document = json.loads((folder / MANIFEST).read_bytes())
        with PackageWriter(folder, replace=True) as writer:
            for file, spec in before.files.items():
                writer.link_file(file, folder / file, spec)
            writer.add_plan(plan)
            document["plans"].append(plan.name)
            if default:
                document["default_plan"] = plan.name
            document["files"] = {file: spec.model_dump() for file, spec in writer.files().items()}
            writer.publish_document(document)
    return Package.open(folder)
